package bridge

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A suite that writes its arguments and a report into files, and ends with code 1.
const fakeSuite = `#!/bin/sh
printf '%s\n' "$@" >"$CHECK_TEST/arguments"
echo "pass  core/one (1 ms)"
while [ $# -gt 0 ]; do
  if [ "$1" = --report ]; then cp "$CHECK_TEST/said.json" "$2"; fi
  shift
done
exit 1
`

const saidReport = `{"provider": "x 1", "skipped_not_set_up": 2, "checks": [
 {"id": "core/one", "outcome": "passed"},
 {"id": "load-balancers/update-not-found", "outcome": "failed", "failure": {"rule": "LB-11", "rule_text": "Where there is none: NOT_FOUND."}},
 {"id": "load-balancers/update-deleted", "outcome": "failed", "failure": {"rule": "LB-11", "rule_text": "Where there is none: NOT_FOUND."}},
 {"id": "load-balancers/get-made", "outcome": "failed", "failure": {"rule": "LB-9"}},
 {"id": "load-balancers/owner-previous", "outcome": "failed", "failure": {"rule": "LB-1"}},
 {"id": "provider/watch", "outcome": "warned", "failure": {"rule": "PROV-21"}}]}`

const saidRules = `pass  core/one (1 ms)

Rules that the cloud breaks (each with the checks that show it):
  LB-9  load-balancers/get-made
  LB-11  load-balancers/update-not-found, load-balancers/update-deleted
      Where there is none: NOT_FOUND.
      -> --get-before-update calls GetLoadBalancer before each UpdateLoadBalancer

Rules that it should keep, and does not:
  PROV-21  provider/watch

Rules whose checks a cloud with Go's interface alone need not pass:
  LB-1  load-balancers/owner-previous
      -> Go's interface knows no owner ID: OwnerChecker adds that
`

// fakedSuite makes a folder with the fake suite and its report, and lets the suite's variable name that suite.
func fakedSuite(t *testing.T, report string) string {
	t.Helper()
	directory := t.TempDir()
	t.Setenv("CHECK_TEST", directory)
	t.Setenv("TMPDIR", directory)
	t.Setenv(suiteVariable, filepath.Join(directory, "suite"))
	must(t, os.WriteFile(filepath.Join(directory, "suite"), []byte(fakeSuite), 0o755))
	must(t, os.WriteFile(filepath.Join(directory, "said.json"), []byte(report), 0o600))
	return directory
}

func TestACheckSaysWhichRulesAreBrokenAndByWhichChecks(t *testing.T) {
	directory := fakedSuite(t, saidReport)
	var output, errorOutput bytes.Buffer
	if code := runCheck([]string{"--cloud-config", "it's here"}, []string{"--allow-skipped"}, &output, &errorOutput); code != 1 {
		t.Errorf("the code is %d: %s", code, errorOutput.String())
	}
	if output.String() != saidRules {
		t.Errorf("%s", output.String())
	}
	text, err := os.ReadFile(filepath.Join(directory, "arguments"))
	must(t, err)
	arguments := strings.Split(strings.TrimSpace(string(text)), "\n")
	self, err := os.Executable()
	must(t, err)
	command := "exec '" + self + `' '--cloud-config' 'it'\''s here' --endpoint {endpoint} 2>>'` + directory
	if len(arguments) != 5 || arguments[0] != "--command" || !strings.HasPrefix(arguments[1], command) || arguments[4] != "--allow-skipped" {
		t.Errorf("%q", arguments)
	}
}

func TestACheckThatShowsNothingSaysThat(t *testing.T) {
	for report, text := range map[string]string{
		`{"checks": [{"id": "core/one", "outcome": "passed"}]}`: "The cloud breaks no rule that the suite can see.",
		`{"skipped_not_set_up": 3, "checks": [{"id": "a", "outcome": "skipped_not_set_up", "reason": "no hook b"}, {"id": "c", "outcome": "skipped_not_set_up", "reason": "no hook d"}, {"id": "e", "outcome": "skipped_not_set_up", "reason": "no hook d"}]}`: "3 checks were not made, for want of (check … -- --config suite.yaml):\n    2  no hook d\n    1  no hook b\n\nNo check that was made shows",
		`{"interrupted": true}`: "others did not run",
	} {
		fakedSuite(t, report)
		var output, errorOutput bytes.Buffer
		if runCheck(nil, nil, &output, &errorOutput); !strings.Contains(output.String(), text) {
			t.Errorf("%s: %s", report, output.String())
		}
	}
	// If the arguments name the file of the report, check reads that file. A report that the suite did
	// not write is no error.
	fakedSuite(t, `{}`)
	var output, errorOutput bytes.Buffer
	if code := runCheck(nil, []string{"--report=" + filepath.Join(t.TempDir(), "mine")}, &output, &errorOutput); code != 1 || output.String() != "pass  core/one (1 ms)\n" {
		t.Errorf("%d: %s%s", code, output.String(), errorOutput.String())
	}
}

func TestWhatNoGoCloudPassesFailsNoCheck(t *testing.T) {
	const excused = `{"id": "load-balancers/owner-previous", "outcome": "failed", "failure": {"rule": "LB-1"}}`
	for _, row := range []struct {
		report string
		suite  []string
		code   int
	}{
		{`{"checks": [` + excused + `]}`, nil, 0},
		{`{"skipped_not_set_up": 1, "checks": [` + excused + `]}`, nil, 1},
		{`{"skipped_not_set_up": 1, "checks": [` + excused + `]}`, []string{"--allow-skipped"}, 0},
		{`{"left_behind": ["a load balancer"], "checks": [` + excused + `]}`, nil, 1},
		{`{"skipped_not_tried": 1, "checks": [` + excused + `]}`, nil, 1},
		{`{"checks": [` + excused + `, {"id": "load-balancers/get-made", "outcome": "failed", "failure": {"rule": "LB-9"}}]}`, nil, 1},
		// This cloud has OwnerChecker.
		{`{"checks": [` + excused + `, {"id": "load-balancers/owner-same-cluster-name", "outcome": "passed"}]}`, nil, 1},
		{`{"checks": []}`, nil, 1},
	} {
		fakedSuite(t, row.report)
		var output, errorOutput bytes.Buffer
		if code := runCheck(nil, row.suite, &output, &errorOutput); code != row.code {
			t.Errorf("%s: the code is %d", row.report, code)
		}
	}
}

func TestAFlagOfTheSuiteIsSentBehindTheDashes(t *testing.T) {
	flags := pflag.NewFlagSet("program", pflag.ContinueOnError)
	flags.String("cloud-config", "", "")
	if err := suitesOwn(flags, []string{"--cloud-config", "x", "--cloud-config=x"}); err != nil {
		t.Error(err)
	}
	if err := suitesOwn(flags, []string{"--config=suite.yaml"}); err == nil || !strings.Contains(err.Error(), "check … -- --config …") {
		t.Errorf("%v", err)
	}
}

func TestWhatTheProviderLoggedLastIsShown(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(log, []byte("0\n"+strings.Repeat("line\n", lastLines-1)+"no credentials\n"), 0o600))
	var output bytes.Buffer
	showEnd(log, &output)
	if text := output.String(); !strings.Contains(text, "  no credentials\n") || strings.Contains(text, "  0\n") {
		t.Errorf("%s", text)
	}
}

func TestAMissingSuiteIsSaidWithTheCommandThatInstallsIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for named, text := range map[string]string{"": "cargo install --locked --path provider-conformance", "/nowhere/suite": `$PROVIDER_CONFORMANCE is "/nowhere/suite"`} {
		t.Setenv(suiteVariable, named)
		var output, errorOutput bytes.Buffer
		if code := runCheck(nil, nil, &output, &errorOutput); code != wrongUsage || !strings.Contains(errorOutput.String(), text) {
			t.Errorf("%q: %d %s", named, code, errorOutput.String())
		}
	}
}

func TestMainChecksWithTheFlagsBeforeTheDashesAndTheSuitesBehind(t *testing.T) {
	directory := fakedSuite(t, saidReport)
	arguments, flags := os.Args, pflag.CommandLine
	defer func() { os.Args, pflag.CommandLine = arguments, flags }()
	for _, row := range []struct {
		given []string
		code  int
	}{
		{[]string{"--endpoint", "unix:///x/y"}, wrongUsage},
		{[]string{"stray"}, wrongUsage},
		{[]string{"--config", "suite.yaml"}, wrongUsage},
		{[]string{"--drain=3s", "--", "--only", "core/*"}, 1},
	} {
		pflag.CommandLine = pflag.NewFlagSet("program", pflag.ContinueOnError)
		os.Args = append([]string{"program", "check"}, row.given...)
		if code := Main("scripted", Options{Version: "1"}); code != row.code {
			t.Errorf("%v: %d", row.given, code)
		}
	}
	text, err := os.ReadFile(filepath.Join(directory, "arguments"))
	must(t, err)
	if !strings.Contains(string(text), " '--drain=3s' --endpoint {endpoint}") || !strings.HasSuffix(string(text), "\n--only\ncore/*\n") {
		t.Errorf("%s", text)
	}
}

// NOT_IN_GO in ccm/tests/bridge/exceptions.rs lists the same checks as beyondGo: no Go cloud of the tests passes them without the methods of
// optional.go. The tests of ccm/tests/bridge fail if a cloud without OwnerChecker passes one of these checks.
func TestWhatNoGoCloudPassesIsWhatTheTestOfTheCloudsSays(t *testing.T) {
	text, err := os.ReadFile("../../../ccm/tests/bridge/exceptions.rs")
	if os.IsNotExist(err) {
		t.Skip("not in a checkout")
	}
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "NOT_IN_GO: &[Exception] = &[")
	rest, _, found := strings.Cut(rest, "\n];")
	if !found {
		t.Fatal("NOT_IN_GO is not there")
	}
	stated := regexp.MustCompile(`"([a-z-]+/[a-z0-9-]+)"`).FindAllStringSubmatch(rest, -1)
	var there []string
	for _, one := range stated {
		there = append(there, one[1])
	}
	var ours []string
	for ids := range maps.Values(beyondGo) {
		ours = append(ours, ids...)
	}
	slices.Sort(there)
	slices.Sort(ours)
	if !slices.Equal(there, ours) {
		t.Errorf("%v, and here %v", there, ours)
	}
}
