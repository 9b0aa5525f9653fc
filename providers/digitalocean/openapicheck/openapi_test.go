package openapicheck

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// A line of the journal of the test API.
type call struct {
	Method, URL     string
	Status          int
	Planned         bool
	Request, Answer json.RawMessage
}

// What differs from the description on purpose, and why.
var known = map[string]string{
	`POST /v2/load_balancers 202: request: /ip: readOnly property "ip" in request`: "the annotation `ip` asks for an address of one's own; DigitalOcean's SDK and its own controller send it so, and the description does not have it yet",
}

// The journal of a run is what the document says, each request and each answer. Both are given, as neither is stored here:
//
//	DIGITALOCEAN_OPENAPI=bundled.yaml DIGITALOCEAN_JOURNAL=journal.jsonl go test ./...
func TestTheJournalIsWhatDigitalOceanPublishes(t *testing.T) {
	document, journal := os.Getenv("DIGITALOCEAN_OPENAPI"), os.Getenv("DIGITALOCEAN_JOURNAL")
	if document == "" || journal == "" {
		t.Skip("set DIGITALOCEAN_OPENAPI to DigitalOcean's OpenAPI document in one file, and DIGITALOCEAN_JOURNAL to the journal of a test API; providers/digitalocean/README.md says how to get both")
	}
	router := load(t, document)
	file, err := os.Open(journal)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	calls, faults := map[string]int{}, map[string]int{}
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", journal, err)
		}
		if c.Planned { // A failure that a test has thought up.
			continue
		}
		route, wrong := check(t, router, &c)
		calls[route]++
		for _, fault := range wrong {
			faults[route+": "+fault]++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(calls) == 0 {
		t.Fatalf("%s holds no call", journal)
	}
	for _, route := range sorted(calls) {
		t.Logf("%6d %s", calls[route], route)
	}
	for _, fault := range sorted(faults) {
		if why := known[fault]; why != "" {
			t.Logf("%d times, known: %s: %s", faults[fault], fault, why)
			continue
		}
		t.Errorf("%d times: %s", faults[fault], fault)
	}
}

func load(t *testing.T, path string) routers.Router {
	t.Helper()
	loader := openapi3.NewLoader()
	loader.IsExternalRefsAllowed = true
	document, err := loader.LoadFromFile(path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	document.Servers = nil
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return router
}

// check gives what is wrong with one call. A request that the API refused with 4xx may break the description: that is then why.
func check(t *testing.T, router routers.Router, c *call) (name string, wrong []string) {
	request, err := http.NewRequestWithContext(t.Context(), c.Method, c.URL, bytes.NewReader(c.Request))
	if err != nil {
		t.Fatal(err)
	}
	request.URL, _ = url.Parse(c.URL)
	request.Header.Set("Content-Type", "application/json")
	name = fmt.Sprintf("%s %s %d", c.Method, request.URL.Path, c.Status)
	route, parameters, err := router.FindRoute(request)
	if err != nil {
		return name, []string{"the description has no such call: " + err.Error()}
	}
	name = fmt.Sprintf("%s %s %d", c.Method, route.Path, c.Status)
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, MultiError: true, IncludeResponseStatus: true}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, Route: route, Options: options}
	if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil && c.Status < 400 {
		wrong = append(wrong, explain("request", err)...)
	}
	header := http.Header{}
	if len(c.Answer) > 0 {
		header.Set("Content-Type", "application/json")
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: c.Status, Header: header, Options: options}
	answer.SetBodyBytes(c.Answer)
	if err := openapi3filter.ValidateResponse(t.Context(), answer); err != nil {
		wrong = append(wrong, explain("answer", err)...)
	}
	return name, wrong
}

// The faults of an error, each once and in one line, without the values that differ from call to call.
func explain(what string, err error) (lines []string) {
	var many openapi3.MultiError
	var schema *openapi3.SchemaError
	switch {
	case errors.As(err, &many):
		for _, one := range many {
			lines = append(lines, explain(what, one)...)
		}
	case errors.As(err, &schema):
		reason := schema.Reason
		if schema.Origin != nil {
			return explain(what, schema.Origin)
		}
		lines = append(lines, fmt.Sprintf("%s: /%s: %s", what, strings.Join(schema.JSONPointer(), "/"), reason))
	default:
		first, _, _ := strings.Cut(err.Error(), "\n")
		lines = append(lines, what+": "+first)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func sorted(counts map[string]int) (keys []string) {
	for key := range counts {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
