package plan

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Users read the table: each annotation stands in it, and no other.
func TestThePageHasEachAnnotation(t *testing.T) {
	page, err := os.ReadFile("../../../docs/hetzner.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Annotations")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := []string{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z0-9-]+)`").FindAllStringSubmatch(cells[1], -1) {
			listed = append(listed, name[1])
		}
	}
	known := slices.Clone(Honoured)
	for name := range Refused {
		known = append(known, name)
	}
	slices.Sort(listed)
	slices.Sort(known)
	if !slices.Equal(listed, known) {
		t.Errorf("the page has\n%v\nand the provider\n%v", listed, known)
	}
}

// LB-30: what does not fit becomes digits, and never a cut text.
func TestValuesThatDoNotFitBecomeDigits(t *testing.T) {
	for text, fits := range map[string]bool{"5b2c1c0e-0000-4000-8000-000000000001": true, "with space": false, "-x": false, strings.Repeat("a", 64): false, strings.Repeat("a", 63): true} {
		value := Value(text)
		if (value == text) != fits || !labelValue.MatchString(value) {
			t.Errorf("%q became %q", text, value)
		}
	}
}
