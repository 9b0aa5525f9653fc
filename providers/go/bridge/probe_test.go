package bridge

import (
	"os"
	"testing"
)

func TestABridgedCloudIsProbedByItsOwnProgram(t *testing.T) {
	bridge := serve(t, &scripted{}, Options{Version: "1"})
	// Without --endpoint the probe calls the provider's own default endpoint, here from the environment.
	t.Setenv("CLOUD_PROVIDER_ENDPOINT", "unix://"+bridge.path)
	arguments := os.Args
	defer func() { os.Args = arguments }()
	for _, row := range []struct {
		arguments []string
		code      int
	}{
		{[]string{"--timeout=30s", "--ready"}, 0},
		{[]string{"--endpoint", "unix://" + bridge.path + ".missing"}, 1},
		{[]string{"--timeout=0s"}, 2},
	} {
		os.Args = append([]string{"program", "probe"}, row.arguments...)
		if code := Main("scripted", Options{Version: "1"}); code != row.code {
			t.Errorf("%v: %d, not %d", row.arguments, code, row.code)
		}
	}
}
