package testapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The intended differences from the description, with their reasons.
var known = map[string]string{
	"datacenter is missing":             "Hetzner takes data centres away, and its SDK reads them no more",
	"included_traffic is not described": "the SDK's type has it",
	"timeout_idle is not described":     "a younger field, which Hetzner's SDK and its own controller know",
	"deprecation is not described":      "a younger field of the SDK",
	"id is not described":               "the SDK reads the ID of a load balancer's public address",
	"blocked is not described":          "the SDK's type has it",
}

// Each accepted request of a journal, and its answer, keeps to the description, except for the
// differences in known. Planned answers are left out. Neither file is stored here:
//
//	HETZNER_OPENAPI=hcloud.json HETZNER_JOURNAL=journal.jsonl go test ./testapi
func TestTheJournalIsWhatTheDescriptionSays(t *testing.T) {
	path, journal := os.Getenv("HETZNER_OPENAPI"), os.Getenv("HETZNER_JOURNAL")
	if path == "" || journal == "" {
		t.Skip("set HETZNER_OPENAPI to an OpenAPI document of Hetzner Cloud's API in JSON, and HETZNER_JOURNAL to the journal of a test API; README.md says how to get both")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := description{faults: map[string]int{}}
	if err := json.Unmarshal(text, &d.document); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(journal)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	calls := 0
	for lines.Scan() {
		var call struct {
			Method, URL     string
			Status          int
			Planned         bool
			Request, Answer any
		}
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			t.Fatal(err)
		}
		if call.Planned || call.Status >= 400 {
			continue
		}
		calls++
		route, _, _ := strings.Cut(strings.TrimPrefix(call.URL, "/v1"), "?")
		d.where = call.Method + " " + number.ReplaceAllString(route, "/{id}")
		operation, _ := d.at("paths", number.ReplaceAllString(route, "/{id}"), strings.ToLower(call.Method))
		if operation == nil {
			d.fault("the call is not described")
			continue
		}
		d.body("request", operation["requestBody"], call.Request)
		answers, _ := operation["responses"].(map[string]any)
		answer, described := answers[fmt.Sprint(call.Status)]
		if !described {
			d.fault(fmt.Sprint("status ", call.Status, " is not described"))
		}
		d.body("answer", answer, call.Answer)
	}
	if calls == 0 {
		t.Fatalf("%s holds no call", journal)
	}
	t.Logf("%d calls", calls)
	for _, fault := range slices.Sorted(maps.Keys(d.faults)) {
		words := strings.Fields(fault)
		if why := known[strings.Join(words[max(0, len(words)-4):], " ")] + known[strings.Join(words[max(0, len(words)-3):], " ")]; why != "" {
			t.Logf("%d times, known: %s: %s", d.faults[fault], fault, why)
			continue
		}
		t.Errorf("%d times: %s", d.faults[fault], fault)
	}
}

var number = regexp.MustCompile(`/[0-9]+`)

type description struct {
	document map[string]any
	where    string
	faults   map[string]int
}

func (d *description) fault(text string) { d.faults[d.where+": "+text]++ }

func (d *description) at(path ...string) (map[string]any, bool) {
	at := d.document
	for _, key := range path {
		next, is := at[key].(map[string]any)
		if !is {
			return nil, false
		}
		at = next
	}
	return at, true
}

func (d *description) body(what string, described, value any) {
	holder, _ := d.resolve(described)
	content, _ := holder["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	if media == nil || value == nil {
		return
	}
	d.value(what, media["schema"], value)
}

func (d *description) resolve(schema any) (map[string]any, bool) {
	object, is := schema.(map[string]any)
	for is {
		reference, has := object["$ref"].(string)
		if !has {
			break
		}
		object, is = d.at(strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
	}
	return object, is
}

// value checks a value against its schema: undescribed fields, missing required fields, null and enumerations. It skips a value whose schema combines others (oneOf, anyOf, allOf).
func (d *description) value(path string, schema, value any) {
	s, is := d.resolve(schema)
	if !is || s["oneOf"] != nil || s["anyOf"] != nil || s["allOf"] != nil {
		return
	}
	if values, has := s["enum"].([]any); has && value != nil && !slices.Contains(values, value) {
		d.fault(fmt.Sprintf("%s: %v is none of %v", path, value, values))
	}
	switch value := value.(type) {
	case nil:
		if s["nullable"] != true {
			d.fault(path + " is null")
		}
	case []any:
		for _, item := range value {
			d.value(path, s["items"], item)
		}
	case map[string]any:
		properties, has := s["properties"].(map[string]any)
		if !has {
			return
		}
		required, _ := s["required"].([]any)
		for _, key := range required {
			if _, there := value[key.(string)]; !there {
				d.fault(fmt.Sprintf("%s: %s is missing", path, key))
			}
		}
		for key, item := range value {
			if properties[key] == nil {
				d.fault(fmt.Sprintf("%s: %s is not described", path, key))
				continue
			}
			d.value(path+"/"+key, properties[key], item)
		}
	}
}
