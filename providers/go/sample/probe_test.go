package main

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

func probed(arguments ...string) (int, string) {
	var output, errorOutput strings.Builder
	code := sdk.RunProbe(arguments, sdk.DefaultEndpoint, &output, &errorOutput)
	return code, output.String() + errorOutput.String()
}

func TestAProviderLivesWhateverItsCloudDoes(t *testing.T) {
	h := serve(t)
	if _, err := h.info.Probe(h.ctx, &contract.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if code, line := probed("--endpoint", h.endpoint, "--timeout", "30s"); code != 0 || line != "live: the provider says READY\n" {
		t.Errorf("%d %q", code, line)
	}
	if err := os.WriteFile(h.state+".weather.json", []byte(`{"fail": "UNAVAILABLE"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = h.provider.cloud.Read(h.ctx, 0)
	for _, flags := range [][]string{{}, {"--ready"}} {
		code, line := probed(append(flags, "--endpoint", h.endpoint, "--timeout", "30s")...)
		if code != 0 || !strings.Contains(line, "the provider says DEGRADED (") {
			t.Errorf("%v: %d %q", flags, code, line)
		}
	}
}
