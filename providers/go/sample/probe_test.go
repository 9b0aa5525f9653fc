package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"example.invalid/providers/go/contract"
)

func probed(arguments ...string) (int, string) {
	var output, errorOutput strings.Builder
	code := Probe(arguments, &output, &errorOutput)
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

func TestWhatDoesNotAnswerIsNamedInTime(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listen := func(name, garbage string, answers bool) string {
		path := filepath.Join(directory, name)
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for answers {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = connection.Write([]byte(garbage))
				connection.Close()
			}
		}()
		return path
	}
	for _, row := range []struct{ path, timeout, said string }{
		{filepath.Join(directory, "missing"), "30s", "not live: the socket"},
		{file, "30s", "not live: nobody listens on"},
		{listen("silent", "", false), "200ms", "within 200ms"},
		{listen("http", "HTTP/1.1 400 Bad Request\r\n\r\n", true), "30s", "did not answer as a provider"},
		{listen("closed", "", true), "30s", "did not answer as a provider"},
	} {
		code, line := probed("--endpoint=unix://"+row.path, "--timeout="+row.timeout)
		if code != 1 || !strings.Contains(line, row.said) || strings.Count(line, "\n") != 1 {
			t.Errorf("%s: %d %q", row.path, code, line)
		}
	}
	for _, wrong := range [][]string{{"--timeout=0s"}, {"--endpoint=/x"}, {"more"}, {"--nonsense"}} {
		if code, line := probed(wrong...); code != 2 || line == "" {
			t.Errorf("%v: %d %q", wrong, code, line)
		}
	}
}
