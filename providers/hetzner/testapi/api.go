// Package testapi is the part of Hetzner Cloud's API that this provider uses, in memory, for tests: servers, load balancers, networks, certificates,
// locations and actions. It has paging, rate limits, quotas, error bodies and lists that are late. Its bodies are the schema types of Hetzner's own SDK, and
// it refuses a request with a field that those types lack.
package testapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"

	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// Token is a token with all rights, which exists from the start. NetworkID is the project's network, named "cluster"; NetworkElsewhere is that of the other
// project.
const (
	Token            = "hcloud-test-token"
	NetworkID        = 4711
	NetworkElsewhere = 5822
)

// Settings set the behaviour of the cloud. All times are in milliseconds.
type Settings struct {
	// ActionMS is how long an action runs; while it runs, its object takes no other action and no
	// deletion. A list lacks a new load balancer for ListLagMS.
	ActionMS  int `json:"action_ms"`
	ListLagMS int `json:"list_lag_ms"`
	// LoadBalancerLimit is the project's quota; none if zero.
	LoadBalancerLimit int `json:"load_balancer_limit"`
	// DeleteActions says that the answer to a load balancer's removal is an action, as the SDK reads it, and not 204, as in an older description.
	DeleteActions bool `json:"delete_actions"`
}

// Cloud is the state of the test API.
type Cloud struct {
	*shared.API

	mutex        sync.Mutex
	settings     Settings
	nextID       int64
	servers      []*schema.Server
	balancers    []*schema.LoadBalancer
	networks     []*schema.Network
	certificates []*schema.Certificate
	actions      map[int64]*schema.Action
	ends         map[int64]time.Time
	made         map[int64]time.Time
}

// New returns a project with one empty network, and a second project, whose network has the same name. It writes each call to record as a line of JSON,
// unless record is nil.
func New(record io.Writer) *Cloud {
	c, other := project(10_000, NetworkID), project(7_000_000, NetworkElsewhere)
	mux := c.paths()
	c.API = shared.New(shared.Options{
		Handler: mux, Elsewhere: other.paths(), Error: func(w http.ResponseWriter, status int, why string) { writeError(w, ofStatus(status, why)) }, RateHeaders: rateHeaders,
		Route:  func(r *http.Request) string { _, pattern := mux.Handler(r); return pattern },
		Tokens: map[string]shared.Token{Token: {}}, Limit: 3_600, Window: time.Hour, Record: record,
	})
	c.control()
	return c
}

func project(nextID, network int64) *Cloud {
	c := &Cloud{nextID: nextID, actions: map[int64]*schema.Action{}, ends: map[int64]time.Time{}, made: map[int64]time.Time{}}
	c.networks = []*schema.Network{{
		ID: network, Name: "cluster", IPRange: "10.0.0.0/8", Created: epoch, Routes: []schema.NetworkRoute{}, Servers: []int64{}, LoadBalancers: []int64{}, Labels: map[string]string{},
		Subnets: []schema.NetworkSubnet{{Type: "cloud", IPRange: "10.1.0.0/16", NetworkZone: "eu-central", Gateway: "10.1.0.1"}},
	}}
	return c
}

func (c *Cloud) paths() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(r *http.Request) (int, any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			if status, body, err := answer(r); err != nil {
				writeError(w, err)
			} else {
				write(w, status, body)
			}
		})
	}
	handle("GET /v1/servers", c.listServers)
	handle("GET /v1/servers/{id}", c.getServer)
	handle("GET /v1/locations", c.listLocations)
	handle("GET /v1/load_balancer_types", c.listTypes)
	handle("GET /v1/certificates", c.listCertificates)
	handle("GET /v1/actions", c.listActions)
	handle("GET /v1/networks", c.listNetworks)
	handle("GET /v1/networks/{id}", c.getNetwork)
	handle("POST /v1/networks/{id}/actions/{action}", c.networkAction)
	handle("GET /v1/load_balancers", c.listBalancers)
	handle("POST /v1/load_balancers", c.createBalancer)
	handle("GET /v1/load_balancers/{id}/actions", c.listActionsOf)
	handle("GET /v1/load_balancers/{id}", c.getBalancer)
	handle("PUT /v1/load_balancers/{id}", c.updateBalancer)
	handle("DELETE /v1/load_balancers/{id}", c.deleteBalancer)
	handle("POST /v1/load_balancers/{id}/actions/{action}", c.balancerAction)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { writeError(w, errNotFound) })
	return mux
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func rateHeaders(header http.Header, rate shared.Rate) {
	header.Set("RateLimit-Limit", strconv.Itoa(rate.Limit))
	header.Set("RateLimit-Remaining", strconv.Itoa(rate.Remaining))
	header.Set("RateLimit-Reset", strconv.FormatInt(rate.Full.Add(time.Second).Unix(), 10))
}

// apiError is an error in the API's form.
type apiError struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
	Details any    `json:"details"`
}

func (e *apiError) Error() string { return e.Message }

func refuse(status int, code, text string, arguments ...any) error {
	return &apiError{status, code, fmt.Sprintf(text, arguments...), struct{}{}}
}

func invalid(field, text string, arguments ...any) error {
	message := fmt.Sprintf(text, arguments...)
	type fieldError struct {
		Name     string   `json:"name"`
		Messages []string `json:"messages"`
	}
	details := map[string][]fieldError{"fields": {{field, []string{message}}}}
	return &apiError{http.StatusUnprocessableEntity, "invalid_input", "invalid input in field '" + field + "'", details}
}

var errNotFound = refuse(http.StatusNotFound, "not_found", "resource not found")

func ofStatus(status int, why string) error {
	code := map[int]string{401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict", 422: "invalid_input", 423: "locked", 429: "rate_limit_exceeded", 502: "bad_gateway", 503: "unavailable", 504: "timeout"}[status]
	message := map[int]string{401: "the token you provided is invalid", 403: "insufficient permissions for this request", 429: "limit of 3600 requests per hour reached"}[status]
	if code == "" || code == "unavailable" {
		code = "server_error"
	}
	if message == "" {
		message = why
	}
	return refuse(status, code, "%s", message)
}

func writeError(w http.ResponseWriter, err error) {
	answer, known := err.(*apiError)
	if !known {
		answer = refuse(http.StatusInternalServerError, "server_error", "%s", err.Error()).(*apiError)
	}
	write(w, answer.status, map[string]any{"error": answer})
}

func write(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	text, err := json.Marshal(body)
	var value any
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	if err == nil {
		prune(value)
		text, err = json.Marshal(value)
	}
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(text)
}

// prune removes fields that the API leaves out if they are empty; the SDK's types have them as null.
func prune(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range []string{"ip", "label_selector", "server", "http"} {
			if there, is := value[key]; is && there == nil {
				delete(value, key)
			}
		}
		for _, item := range value {
			prune(item)
		}
	case []any:
		for _, item := range value {
			prune(item)
		}
	}
}

// body reads a request into the SDK's own type. A field that the type lacks is an error.
func body(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && err != io.EOF {
		return refuse(http.StatusBadRequest, "json_error", "%s", err.Error())
	}
	return nil
}

// page is one page of a listing: the objects under their key, and meta.
func page[T any](r *http.Request, key string, all []T) (int, any, error) {
	number := func(name string, unless, most int) (int, error) {
		text := r.URL.Query().Get(name)
		if text == "" {
			return unless, nil
		}
		value, err := strconv.Atoi(text)
		if err != nil || value < 1 || value > most {
			return 0, invalid(name, "%s must be within 1 and %d", name, most)
		}
		return value, nil
	}
	size, err := number("per_page", 25, 50)
	if err != nil {
		return 0, nil, err
	}
	at, err := number("page", 1, 1<<30)
	if err != nil {
		return 0, nil, err
	}
	last := max(1, (len(all)+size-1)/size)
	from := min((at-1)*size, len(all))
	items := append([]T{}, all[from:min(from+size, len(all))]...)
	pagination := map[string]any{"page": at, "per_page": size, "previous_page": nil, "next_page": nil, "last_page": last, "total_entries": len(all)}
	if at > 1 {
		pagination["previous_page"] = at - 1
	}
	if at < last {
		pagination["next_page"] = at + 1
	}
	return http.StatusOK, map[string]any{key: items, "meta": map[string]any{"pagination": pagination}}, nil
}

// chosen returns the objects that the query's name and label_selector select.
func chosen[T any](r *http.Request, all []*T, of func(*T) (string, map[string]string)) ([]*T, error) {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("label_selector"))
	if err != nil {
		return nil, invalid("label_selector", "%s", err)
	}
	left := []*T{}
	for _, object := range all {
		name, its := of(object)
		if (!query.Has("name") || query.Get("name") == name) && selector.Matches(labels.Set(its)) {
			left = append(left, object)
		}
	}
	return left, nil
}

func pathID(r *http.Request) int64 {
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
	return id
}

// begin starts an action on an object. Its callers refuse a change while another action runs on the object.
func (c *Cloud) begin(command, kind string, id int64) *schema.Action {
	c.nextID++
	action := &schema.Action{
		ID: c.nextID, Status: "running", Command: command, Started: time.Now().UTC(), Resources: []schema.ActionResourceReference{{ID: id, Type: kind}},
	}
	c.actions[action.ID], c.ends[action.ID] = action, time.Now().Add(ms(c.settings.ActionMS))
	c.advance()
	return action
}

func (c *Cloud) locked(id int64) error {
	c.advance()
	for _, action := range c.actions {
		if action.Status == "running" && action.Resources[0].ID == id {
			return refuse(http.StatusLocked, "locked", "item is locked")
		}
	}
	return nil
}

func (c *Cloud) advance() {
	for id, action := range c.actions {
		if action.Status == "running" && !time.Now().Before(c.ends[id]) {
			now := time.Now().UTC()
			action.Status, action.Progress, action.Finished = "success", 100, &now
		}
	}
}

// listActions returns the actions with the IDs of the request.
func (c *Cloud) listActions(r *http.Request) (int, any, error) {
	ids := r.URL.Query()["id"]
	if len(ids) == 0 {
		return 0, nil, invalid("id", "id is required")
	}
	asked := c.actionsThat(func(action *schema.Action) bool { return slices.Contains(ids, strconv.FormatInt(action.ID, 10)) })
	return http.StatusOK, schema.ActionListResponse{Actions: values(asked)}, nil
}

// listActionsOf returns the actions of a load balancer, the oldest first, or the newest first with sort=id:desc.
func (c *Cloud) listActionsOf(r *http.Request) (int, any, error) {
	lb, wanted := c.balancerOf(pathID(r)), r.URL.Query()["status"]
	if lb == nil {
		return 0, nil, errNotFound
	}
	asked := c.actionsThat(func(action *schema.Action) bool {
		on := action.Resources[0]
		return on.Type == "load_balancer" && on.ID == lb.ID && (len(wanted) == 0 || slices.Contains(wanted, action.Status))
	})
	if r.URL.Query().Get("sort") == "id:desc" {
		slices.Reverse(asked)
	}
	return page(r, "actions", asked)
}

// actionsThat returns the actions for which `are` is true, in the order of their IDs.
func (c *Cloud) actionsThat(are func(*schema.Action) bool) (chosen []*schema.Action) {
	c.advance()
	for _, id := range slices.Sorted(maps.Keys(c.actions)) {
		if action := c.actions[id]; are(action) {
			chosen = append(chosen, action)
		}
	}
	return chosen
}

func values[T any](pointers []*T) []T {
	all := []T{}
	for _, pointer := range pointers {
		all = append(all, *pointer)
	}
	return all
}

func ms(number int) time.Duration { return time.Duration(number) * time.Millisecond }
