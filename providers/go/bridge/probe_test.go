package bridge

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestABridgedCloudIsProbedByItsOwnProgram(t *testing.T) {
	bridge := serve(t, &scripted{}, Options{Version: "1"})
	silent := filepath.Join(t.TempDir(), "silent")
	listener, err := net.Listen("unix", silent)
	must(t, err)
	defer func() { _ = listener.Close() }()
	for _, row := range []struct {
		arguments []string
		code      int
		said      string
	}{
		{[]string{"--endpoint", unixScheme + bridge.path, "--timeout", "30s"}, 0, "live: the provider says READY"},
		{[]string{"--endpoint", unixScheme + bridge.path, "--timeout", "30s", "--ready"}, 0, "ready: the provider says READY"},
		{[]string{"--endpoint", unixScheme + bridge.path + ".missing"}, 1, "not live: the socket"},
		{[]string{"--endpoint", unixScheme + silent, "--timeout=200ms", "--ready"}, 1, "not ready: no answer from"},
		{[]string{"--timeout=0s"}, 2, "usage"},
	} {
		var output, errors strings.Builder
		if code := probe(row.arguments, &output, &errors); code != row.code || !strings.HasPrefix(output.String()+errors.String(), row.said) {
			t.Errorf("%v: %d %q %q", row.arguments, code, output.String(), errors.String())
		}
	}
}
