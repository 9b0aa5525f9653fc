package plan

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page's table has each annotation that the provider honours or refuses, and no other.
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
