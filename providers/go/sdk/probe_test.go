package sdk

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const somewhere = "unix:///nowhere/provider.sock"

func probed(arguments ...string) (int, string) {
	var output, errorOutput strings.Builder
	code := RunProbe(arguments, somewhere, &output, &errorOutput)
	return code, output.String() + errorOutput.String()
}

// A provider whose answer a test writes.
type scripted struct {
	contract.UnimplementedProviderServiceServer
	answer *contract.ProbeResponse
}

func (s *scripted) Probe(context.Context, *contract.ProbeRequest) (*contract.ProbeResponse, error) {
	return s.answer, nil
}

func TestItLivesWhateverItAnswersAndIsReadyWhereControllersWorkWithIt(t *testing.T) {
	provider := &scripted{}
	path := filepath.Join(t.TempDir(), "p.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	contract.RegisterProviderServiceServer(server, provider)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	for _, row := range []struct {
		answer *contract.ProbeResponse
		says   string
		ready  bool
	}{
		{&contract.ProbeResponse{State: contract.ProbeState_PROBE_STATE_READY}, "READY", true},
		{&contract.ProbeResponse{State: contract.ProbeState_PROBE_STATE_DEGRADED, Message: "the cloud\nis down"}, "DEGRADED (the cloud is down)", true},
		{&contract.ProbeResponse{State: contract.ProbeState_PROBE_STATE_STARTING}, "STARTING", false},
		{&contract.ProbeResponse{}, "BROKEN", false},
		{&contract.ProbeResponse{State: 99}, "BROKEN", false},
	} {
		provider.answer = row.answer
		if code, line := probed("--endpoint=unix://"+path, "--timeout=30s"); code != 0 || line != "live: the provider says "+row.says+"\n" {
			t.Errorf("%v: %d %q", row.answer, code, line)
		}
		expected, prefix := 0, "ready"
		if !row.ready {
			expected, prefix = 1, "not ready"
		}
		if code, line := probed("--ready", "--endpoint=unix://"+path, "--timeout=30s"); code != expected || line != prefix+": the provider says "+row.says+"\n" {
			t.Errorf("%v: %d %q", row.answer, code, line)
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
		{file, "30s", "not live: no process listens on"},
		{listen("silent", "", false), "200ms", "within 200ms"},
		{listen("http", "HTTP/1.1 400 Bad Request\r\n\r\n", true), "30s", "did not answer as a provider"},
		{listen("closed", "", true), "30s", "did not answer as a provider"},
	} {
		code, line := probed("--endpoint=unix://"+row.path, "--timeout="+row.timeout)
		if code != 1 || !strings.Contains(line, row.said) || strings.Count(line, "\n") != 1 {
			t.Errorf("%s: %d %q", row.path, code, line)
		}
	}
	for wrong, said := range map[string]string{
		"--timeout=0s": "--timeout 0s is not above zero", "--endpoint=/x": `--endpoint "/x" does not begin with unix:///`, "more": `the argument "more"`, "--nonsense": "nonsense",
	} {
		if code, text := probed(wrong); code != 2 || !strings.Contains(text, said) {
			t.Errorf("%s: %d %q", wrong, code, text)
		}
	}
	if code, line := probed(); code != 1 || !strings.Contains(line, "/nowhere/provider.sock does not exist") {
		t.Errorf("the default endpoint: %d %q", code, line)
	}
}
