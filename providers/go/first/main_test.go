package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The conformance suite checks the program's answers (`providers/conformance.sh go-first`).

// With FIRST set the test binary runs as the provider.
func TestMain(m *testing.M) {
	if os.Getenv("FIRST") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func first(t *testing.T, arguments ...string) (command *exec.Cmd, said *bytes.Buffer) {
	said = &bytes.Buffer{}
	command = exec.CommandContext(t.Context(), os.Args[0], arguments...)
	command.Env, command.Stderr = append(os.Environ(), "FIRST=1"), said
	return command, said
}

func TestAMachineIsFoundByItsProviderIDAndElseByName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machines.csv")
	if err := os.WriteFile(file, []byte("a,10.0.0.1,8-cores,rack-a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		node  sdk.Node
		state sdk.InstanceState
	}{
		{sdk.Node{Name: "a"}, sdk.InstancePresent},
		{sdk.Node{Name: "b"}, sdk.InstanceUnmanaged},
		{sdk.Node{Name: "renamed", ProviderID: "machines://a"}, sdk.InstancePresent},
		{sdk.Node{Name: "a", ProviderID: "machines://b"}, sdk.InstanceUnmanaged},
		{sdk.Node{Name: "a", ProviderID: "machines://machines://a"}, sdk.InstanceUnmanaged},
	} {
		found, err := machines{file}.LookupInstance(t.Context(), &sdk.Call{}, at.node, sdk.InstanceQuery{})
		if err != nil || found.State != at.state {
			t.Errorf("%v is %v (%v); right would be %v", at.node, found.State, err, at.state)
		}
	}
}

func TestSpacesAroundAFieldDoNotCount(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machines.csv")
	if err := os.WriteFile(file, []byte(" a , 10.0.0.1,8-cores , rack-a\r\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	found, err := machines{file}.LookupInstance(t.Context(), &sdk.Call{}, sdk.Node{Name: "a"}, sdk.InstanceQuery{})
	if err != nil || found.Type != "8-cores" || found.Zone != "rack-a" || len(found.Addresses) != 1 || found.Addresses[0].Address != "10.0.0.1" {
		t.Errorf("%+v (%v); right would be 8-cores in rack-a at 10.0.0.1", found, err)
	}
}

func TestSignalsEndItQuietlyAndRemoveItsSocket(t *testing.T) {
	for _, number := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(number.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "socket", "p.sock")
			command, said := first(t, filepath.Join(t.TempDir(), "machines.csv"), "unix://"+path)
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			if _, err := contract.NewProviderServiceClient(connection).Probe(t.Context(), &contract.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
				t.Fatal(err)
			}
			if err := command.Process.Signal(number); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if err := command.Wait(); err != nil || strings.Contains(said.String(), "WARN") || strings.Contains(said.String(), "ERROR") {
				t.Errorf("%v: %s", err, said)
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("a connection without a call kept it for %v", took)
			}
			if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

func TestAWrongCommandLineIsToldInOneLine(t *testing.T) {
	for words, arguments := range map[string][]string{"usage": nil, "right would be unix:///": {"machines.csv", "p.sock"}} {
		command, said := first(t, arguments...)
		if err := command.Run(); err == nil || !strings.Contains(said.String(), words) || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%v: %v: %s", arguments, err, said)
		}
	}
}
