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

// The intended differences from the description, with their reasons.
var known = map[string]string{
	"request: /health_check/proxy_protocol: the description has no such field": "DigitalOcean's SDK and its own controller send it: kube-proxy's health check takes no PROXY protocol",
	"request: /subnet_uuid: the description has no such field":                 "the annotation `subnet-uuid`, a preview of DigitalOcean's",
	"answer: /load_balancer/subnet_uuid: the description has no such field":    "the same",
	"answer: /load_balancers/subnet_uuid: the description has no such field":   "the same",
	`request: /ip: readOnly property "ip" in request`:                          "the annotation `ip` asks for an address of one's own; DigitalOcean's SDK and its own controller send it so, and the description does not have it yet",
}

// The test leaves out calls whose outcome was planned. Each other accepted request, and each other
// answer, keeps to the document, except for the differences in known. Document and journal are not
// stored here; the environment names both:
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
		if c.Planned { // A test planned this outcome.
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
		_, text, _ := strings.Cut(fault, ": ")
		if why := known[text]; why != "" {
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

// check returns the faults of one call. A request that the API refused with 4xx may break the description: that can be the reason for the refusal.
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
	if body := route.Operation.RequestBody; body != nil && c.Status < 400 {
		wrong = append(wrong, strangers("request", body.Value.Content, c.Request)...)
	}
	if said := route.Operation.Responses.Status(c.Status); said != nil && said.Value != nil {
		wrong = append(wrong, strangers("answer", said.Value.Content, c.Answer)...)
	}
	slices.Sort(wrong)
	return name, slices.Compact(wrong)
}

// strangers returns the fields of a body that the description lacks: validation alone would allow any.
func strangers(what string, content openapi3.Content, body json.RawMessage) []string {
	var value any
	media := content.Get("application/json")
	if media == nil || media.Schema == nil || json.Unmarshal(body, &value) != nil {
		return nil
	}
	return strange(what+": ", []*openapi3.SchemaRef{media.Schema}, value)
}

func strange(path string, schemas []*openapi3.SchemaRef, value any) (wrong []string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			wrong = append(wrong, strange(path, each(schemas, func(s *openapi3.Schema) *openapi3.SchemaRef { return s.Items }), item)...)
		}
	case map[string]any:
		if len(each(schemas, func(s *openapi3.Schema) *openapi3.SchemaRef {
			if len(s.Properties) > 0 {
				return &openapi3.SchemaRef{Value: s}
			}
			return nil
		})) == 0 {
			return nil // An object of which the description says nothing.
		}
		for key, inner := range value {
			of := each(schemas, func(s *openapi3.Schema) *openapi3.SchemaRef { return s.Properties[key] })
			if len(of) == 0 {
				wrong = append(wrong, path+"/"+key+": the description has no such field")
			}
			wrong = append(wrong, strange(path+"/"+key, of, inner)...)
		}
	}
	return wrong
}

// each applies get to these schemas, and to those that they consist of.
func each(schemas []*openapi3.SchemaRef, get func(*openapi3.Schema) *openapi3.SchemaRef) (found []*openapi3.SchemaRef) {
	for _, ref := range schemas {
		if ref == nil || ref.Value == nil {
			continue
		}
		if one := get(ref.Value); one != nil {
			found = append(found, one)
		}
		for _, parts := range [][]*openapi3.SchemaRef{ref.Value.AllOf, ref.Value.OneOf, ref.Value.AnyOf} {
			found = append(found, each(parts, get)...)
		}
	}
	return found
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
