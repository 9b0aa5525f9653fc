package bridge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

const (
	// The conformance suite, and the environment variable that can name another file than that on PATH.
	suiteProgram  = "provider-conformance"
	suiteVariable = "PROVIDER_CONFORMANCE"
	// How many checks the summary names for one rule; the suite's own output names all.
	mostShown = 8
	// How many of the last lines of the provider's log are shown if the suite failed without a
	// report, or no check passed.
	lastLines = 20
	// The exit code for a wrong command line, here and in the suite, and if the suite cannot be run or its report cannot be read.
	wrongUsage = 2
)

// ownerChecker is the end of those reasons that do not apply to a cloud with OwnerChecker.
const ownerChecker = ": OwnerChecker adds that"

// beyondGo has, by reason, the checks that a cloud behind Go's interface cannot be expected to pass.
// If a reason names an interface of optional.go, a cloud that implements it can pass.
var beyondGo = map[string][]string{
	"Go's interface knows no owner ID" + ownerChecker: {
		"load-balancers/ensure-longest-owner",
		"load-balancers/owner-other-cluster-delete",
		"load-balancers/owner-other-cluster-get",
		"load-balancers/owner-other-cluster-update",
		"load-balancers/owner-previous",
		"load-balancers/owner-previous-marked-anew",
		"load-balancers/owner-same-cluster-name",
		"provider/a-previous-owners-load-balancer-is-ours",
		"provider/calls-in-flight-keep-their-owner",
		"provider/previous-owners-are-replaced",
	},
	"Go's interface knows no marks, so that no load balancer is unmarked" + ownerChecker: {
		"load-balancers/ensure-marks-or-their-digits",
		"load-balancers/owner-unmarked-adopted",
		"load-balancers/owner-unmarked-by-address",
		"load-balancers/owner-unmarked-by-name",
	},
	"a Go cloud finds the load balancer of a Service by itself, and takes no handle": {
		"load-balancers/owner-unmarked-of-others",
		"load-balancers/owner-unmarked-untouched",
	},
	"Go's EnsureLoadBalancer sets the targets that it is given and cannot leave them alone": {
		"load-balancers/ensure-twice",
		"load-balancers/targets-absent-is-not-empty",
		"load-balancers/targets-set-later",
	},
	"only a cloud with an instance whose type is no label value can show it (hook instance-odd)": {
		"instances/what-has-no-form-is-left-out",
	},
	"nothing in Go's interface verifies credentials: ScopeTeller does": {
		"provider/refused-credentials-fail-initialize",
	},
}

// remedies are the flags and keys that help if these checks fail.
var remedies = map[string]string{
	"load-balancers/update-not-found":      "--get-before-update calls GetLoadBalancer before each UpdateLoadBalancer",
	"load-balancers/targets-empty-is-none": "where the cloud has no load balancer without targets, write `empty_target_sets: refused` into suite.yaml",
}

// report has the fields that check reads of the suite's report.
type report struct {
	Provider        string   `json:"provider"`
	SkippedNotSetUp int      `json:"skipped_not_set_up"`
	SkippedNotTried int      `json:"skipped_not_tried"`
	Interrupted     bool     `json:"interrupted"`
	LeftBehind      []string `json:"left_behind"`
	Checks          []check  `json:"checks"`
}

// check is the result of one check.
type check struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	// Reason is why the suite skipped the check.
	Reason  string `json:"reason"`
	Failure *struct {
		Rule     string `json:"rule"`
		RuleText string `json:"rule_text"`
	} `json:"failure"`
}

// runCheck runs the conformance suite, which starts this same program with these flags, and prints the broken rules at the end. It returns the suite's
// exit code, or 0 if the run was complete and only checks of beyondGo failed.
func runCheck(flags, forSuite []string, output, errorOutput io.Writer) int {
	failed := func(text string, arguments ...any) int {
		fmt.Fprintf(errorOutput, "check: "+text+"\n", arguments...)
		return wrongUsage
	}
	suite, err := findSuite()
	if err != nil {
		return failed("%v", err)
	}
	self, err := os.Executable()
	if err != nil {
		return failed("%v", err)
	}
	work, err := os.MkdirTemp("", filepath.Base(self)+"-check-")
	if err != nil {
		return failed("%v", err)
	}
	log, path := filepath.Join(work, "provider.log"), filepath.Join(work, "report.json")
	command := "exec"
	for _, word := range append([]string{self}, flags...) {
		command += " " + quoted(word)
	}
	command += " --endpoint {endpoint} 2>>" + quoted(log)
	arguments := []string{"--command", command}
	if given, ok := reportOf(forSuite); ok {
		path = given
	} else {
		arguments = append(arguments, "--report", path)
	}
	fmt.Fprintf(errorOutput, "check: %s starts %s; the provider's log stays in %s, unless the exit code is 0\n", suite, self, log)
	code, err := runSuite(suite, append(arguments, forSuite...), output, errorOutput)
	if err != nil {
		return failed("%s cannot be run: %v", suite, err)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		// There is no report: the suite ended early and printed the reason, or its arguments ask for
		// something else, such as --list.
		if code == 0 {
			_ = os.RemoveAll(work)
		} else {
			showEnd(log, errorOutput)
		}
		return code
	}
	var came report
	if err == nil {
		err = json.Unmarshal(text, &came)
	}
	if err != nil {
		return failed("the suite's report cannot be read: %v", err)
	}
	if !slices.ContainsFunc(came.Checks, func(one check) bool { return one.Outcome == "passed" }) {
		showEnd(log, errorOutput)
	}
	came.write(output)
	if code == 1 && came.excused(slices.Contains(forSuite, "--allow-skipped")) {
		fmt.Fprintln(output, "\nNothing need be done: the exit code is 0.")
		code = 0
	}
	if code == 0 {
		_ = os.RemoveAll(work)
	}
	return code
}

// showEnd shows what the provider logged last.
func showEnd(log string, output io.Writer) {
	text, err := os.ReadFile(log)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if more := len(lines) - lastLines; more > 0 {
		lines = lines[more:]
	}
	fmt.Fprintf(output, "check: the end of the provider's log:\n  %s\n", strings.Join(lines, "\n  "))
}

// suitesOwn returns an error for a flag that the program does not have: flags of the suite come after `--`.
func suitesOwn(flags *pflag.FlagSet, arguments []string) error {
	for _, argument := range arguments {
		name, long := strings.CutPrefix(argument, "--")
		if name, _, _ = strings.Cut(name, "="); long && flags.Lookup(name) == nil && name != "help" {
			return fmt.Errorf("--%s is no flag of the provider; %s's own flags follow after `--`: check … -- --%s …", name, suiteProgram, name)
		}
	}
	return nil
}

func findSuite() (string, error) {
	if named := os.Getenv(suiteVariable); named != "" {
		if _, err := exec.LookPath(named); err != nil {
			return "", fmt.Errorf("$%s is %q, which cannot be run: %w", suiteVariable, named, err)
		}
		return named, nil
	}
	found, err := exec.LookPath(suiteProgram)
	if err != nil {
		return "", fmt.Errorf("%s, the conformance suite, is neither on PATH nor named by $%s. In a checkout of https://github.com/grpc-ccm/grpc-ccm, with Rust (https://rustup.rs), this installs it:\n\n"+
			"    cargo install --locked --path provider-conformance\n", suiteProgram, suiteVariable)
	}
	return found, nil
}

// quoted returns the word quoted for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// reportOf returns the file that the suite's arguments name for its report.
func reportOf(arguments []string) (path string, ok bool) {
	for i, argument := range arguments {
		if path, ok := strings.CutPrefix(argument, "--report="); ok {
			return path, true
		}
		if argument == "--report" && i+1 < len(arguments) {
			return arguments[i+1], true
		}
	}
	return "", false
}

// runSuite runs the suite to its end, also after a signal, so that the suite can remove its objects. A second SIGINT or SIGTERM skips that.
func runSuite(suite string, arguments []string, output, errorOutput io.Writer) (code int, err error) {
	child := exec.Command(suite, arguments...)
	child.Stdout, child.Stderr = output, errorOutput
	// The suite has a separate process group, so that each signal reaches it once, from this process.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return wrongUsage, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case one := <-signals:
			_ = child.Process.Signal(one)
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0, nil
			case !errors.As(err, &exit):
				return wrongUsage, err
			case !exit.Exited():
				return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), nil
			default:
				return exit.ExitCode(), nil
			}
		}
	}
}

// excusedChecks returns the reason of each check of beyondGo. If a check that needs OwnerChecker
// passes, the cloud has OwnerChecker, and the other checks with the same reason are not excused.
func (r *report) excusedChecks() map[string]string {
	beyond := map[string]string{}
	for reason, ids := range beyondGo {
		if strings.HasSuffix(reason, ownerChecker) && slices.ContainsFunc(r.Checks, func(one check) bool { return one.Outcome == "passed" && slices.Contains(ids, one.ID) }) {
			continue
		}
		for _, id := range ids {
			beyond[id] = reason
		}
	}
	return beyond
}

// excused reports whether the run was complete, and its only failures are checks of beyondGo that excusedChecks excuses.
func (r *report) excused(allowSkipped bool) bool {
	beyond, failed := r.excusedChecks(), false
	for _, one := range r.Checks {
		if one.Outcome == "failed" {
			if beyond[one.ID] == "" {
				return false
			}
			failed = true
		}
	}
	return failed && !r.Interrupted && r.SkippedNotTried == 0 && len(r.LeftBehind) == 0 && (allowSkipped || r.SkippedNotSetUp == 0)
}

// write prints the broken rules, and the checks that found them.
func (r *report) write(output io.Writer) {
	beyond, rest := r.excusedChecks(), []check(nil)
	var accounted []check
	for _, one := range r.Checks {
		switch {
		case one.Failure == nil:
		case beyond[one.ID] != "":
			accounted = append(accounted, one)
		default:
			rest = append(rest, one)
		}
	}
	said := byRule(output, "Rules that the cloud breaks (each with the checks that show it):", rest, "failed", func(id string) string { return remedies[id] })
	byRule(output, "Rules that it should keep, and does not:", rest, "warned", func(string) string { return "" })
	byRule(output, "Rules whose checks a cloud with Go's interface alone need not pass:", accounted, "failed", func(id string) string { return beyond[id] })
	r.writeLacks(output)
	switch {
	case said:
	case r.Interrupted, r.SkippedNotTried > 0:
		fmt.Fprintln(output, "\nNo check that ran shows that the cloud breaks a rule; others did not run.")
	case r.SkippedNotSetUp > 0:
		fmt.Fprintln(output, "\nNo check that was made shows that the cloud breaks a rule.")
	default:
		fmt.Fprintln(output, "\nThe cloud breaks no rule that the suite can see.")
	}
}

// writeLacks prints what the checks without a setup lack, the most frequent first.
func (r *report) writeLacks(output io.Writer) {
	lacks := map[string]int{}
	for _, one := range r.Checks {
		if one.Outcome == "skipped_not_set_up" {
			lacks[one.Reason]++
		}
	}
	if len(lacks) == 0 {
		return
	}
	fmt.Fprintf(output, "\n%d checks were not made, for want of (check … -- --config suite.yaml):\n", r.SkippedNotSetUp)
	byCount := func(one, other string) int {
		return cmp.Or(lacks[other]-lacks[one], strings.Compare(one, other))
	}
	for _, reason := range slices.SortedFunc(maps.Keys(lacks), byCount) {
		fmt.Fprintf(output, "  %3d  %s\n", lacks[reason], reason)
	}
}

// byRule writes the checks with this outcome under their rules, in the rules' order; false if there are none.
func byRule(output io.Writer, title string, checks []check, outcome string, more func(id string) string) bool {
	texts, ids := map[string]string{}, map[string][]string{}
	var rules []string
	for _, one := range checks {
		if one.Outcome != outcome {
			continue
		}
		rule := one.Failure.Rule
		if ids[rule] == nil {
			rules = append(rules, rule)
		}
		texts[rule] = one.Failure.RuleText
		ids[rule] = append(ids[rule], one.ID)
	}
	if len(rules) == 0 {
		return false
	}
	slices.SortFunc(rules, compareRules)
	fmt.Fprintf(output, "\n%s\n", title)
	for _, rule := range rules {
		shown, rest := ids[rule], ""
		if more := len(shown) - mostShown; more > 0 {
			shown, rest = shown[:mostShown], fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(output, "  %s  %s%s\n", rule, strings.Join(shown, ", "), rest)
		if texts[rule] != "" {
			fmt.Fprintf(output, "      %s\n", texts[rule])
		}
		var notes []string
		for _, id := range ids[rule] {
			if note := more(id); note != "" && !slices.Contains(notes, note) {
				notes = append(notes, note)
				fmt.Fprintf(output, "      -> %s\n", note)
			}
		}
	}
	return true
}

// compareRules orders rules by name and number: LB-9 comes before LB-11.
func compareRules(one, other string) int {
	name, number, _ := strings.Cut(one, "-")
	name2, number2, _ := strings.Cut(other, "-")
	if order := strings.Compare(name, name2); order != 0 {
		return order
	}
	if order := len(number) - len(number2); order != 0 {
		return order
	}
	return strings.Compare(number, number2)
}
