// Package testapi is the part of DigitalOcean's API that this provider uses, in memory, for tests: droplets, load balancers, certificates, regions, networks
// and the account. It has paging, rate limits, quotas, error bodies, load balancers that take time to be made, and lists that are late. It follows
// DigitalOcean's published description, except for the differences in openapicheck.
package testapi

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// Token is a token with all rights, which exists from the start.
const Token = "dop_v1_test"

// Account is the account's UUID, and VPC that of its network in the region nyc1.
const (
	Account = "b6fr89dbf6d9156cace5f3c78dc9851d957381ef"
	// AccountElsewhere is another account, which is empty.
	AccountElsewhere = "another-account"
	VPC              = "c33931f2-a26a-4e61-b85c-4e95a2ec431b"
	// VPCElsewhere is a network in the region fra1.
	VPCElsewhere = "d4ba5b5a-9738-4a6a-b78d-4a86efb9f9e0"
)

// Settings set the behaviour of the cloud. All times are in milliseconds.
type Settings struct {
	// A load balancer is "new" for ProvisionMS, still exists for DeleteMS after its deletion, and
	// refuses other writes for BusyMS after a change. A droplet is "new" for BootMS, and a list lacks
	// a new droplet or load balancer for ListLagMS. The present settings count, also for what began
	// under others, so a test can end a state without a wait.
	ProvisionMS int `json:"provision_ms"`
	DeleteMS    int `json:"delete_ms"`
	BusyMS      int `json:"busy_ms"`
	BootMS      int `json:"boot_ms"`
	ListLagMS   int `json:"list_lag_ms"`
	// LoadBalancerLimit is the most load balancers that the account may have. Zero means no limit.
	LoadBalancerLimit int `json:"load_balancer_limit"`
	// Errored makes new load balancers "errored".
	Errored bool `json:"errored"`
}

// Cloud is the state of the test API.
type Cloud struct {
	*shared.API

	mutex        sync.Mutex
	settings     Settings
	account      string
	nextID       int
	nextAddress  int
	droplets     []*Droplet
	balancers    []*LoadBalancer
	certificates []*Certificate
}

// New returns an empty cloud, with a second account. It writes each call to record as a line of JSON, unless record is nil.
func New(record io.Writer) *Cloud {
	c := &Cloud{nextID: 3_164_444, account: Account}
	other := &Cloud{nextID: 7_000_000, account: AccountElsewhere}
	mux := c.paths()
	c.API = shared.New(shared.Options{
		Handler: mux, Elsewhere: other.paths(), Error: func(w http.ResponseWriter, status int, why string) { writeError(w, errorOf(status, why)) }, RateHeaders: rateHeaders,
		Route: func(r *http.Request) string { _, pattern := mux.Handler(r); return pattern }, Right: right,
		Tokens: map[string]shared.Token{Token: {}}, Limit: 5_000, Window: time.Hour, Burst: 250, BurstWindow: time.Minute, Record: record,
	})
	c.control()
	return c
}

func (c *Cloud) paths() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, answer func(r *http.Request) (int, any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			c.advance()
			if status, body, err := answer(r); err != nil {
				writeError(w, err)
			} else {
				write(w, status, body)
			}
		})
	}
	handle("GET /v2/account", c.getAccount)
	handle("GET /v2/regions", c.listRegions)
	handle("GET /v2/vpcs/{id}", c.getVPC)
	handle("GET /v2/droplets", c.listDroplets)
	handle("GET /v2/droplets/{id}", c.getDroplet)
	handle("GET /v2/certificates", c.listCertificates)
	handle("GET /v2/certificates/{id}", c.getCertificate)
	handle("GET /v2/load_balancers", c.listBalancers)
	handle("POST /v2/load_balancers", c.createBalancer)
	handle("GET /v2/load_balancers/{id}", c.getBalancer)
	handle("PUT /v2/load_balancers/{id}", c.updateBalancer)
	handle("DELETE /v2/load_balancers/{id}", c.deleteBalancer)
	handle("POST /v2/load_balancers/{id}/droplets", c.addDroplets)
	handle("DELETE /v2/load_balancers/{id}/droplets", c.removeDroplets)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { writeError(w, errNotFound) })
	return mux
}

// right returns the custom scope that a call needs. The scopes have the names in DigitalOcean's description.
func right(r *http.Request) string {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) < 3 {
		return ""
	}
	what := map[string]string{"account": "account", "regions": "regions", "vpcs": "vpc", "droplets": "droplet", "certificates": "certificate", "load_balancers": "load_balancer"}[parts[2]]
	verb := map[string]string{"GET": "read", "POST": "create", "PUT": "update", "DELETE": "delete"}[r.Method]
	if len(parts) > 4 {
		verb = "update" // The droplets of a load balancer.
	}
	return what + ":" + verb
}

// rateHeaders writes when the oldest call becomes free and, after a burst, how long to wait, as DigitalOcean does.
func rateHeaders(header http.Header, rate shared.Rate) {
	header.Set("Ratelimit-Limit", strconv.Itoa(rate.Limit))
	header.Set("Ratelimit-Remaining", strconv.Itoa(rate.Remaining))
	header.Set("Ratelimit-Reset", strconv.FormatInt(rate.Next.Add(time.Second).Unix(), 10))
	if rate.Burst {
		header.Set("Retry-After", strconv.Itoa(int(time.Until(rate.Next).Seconds())+1))
	}
}

// apiError is an error in the API's form.
type apiError struct {
	status  int
	ID      string `json:"id"`
	Message string `json:"message"`
	Request string `json:"request_id"`
}

func (e *apiError) Error() string { return e.Message }

var errNotFound = errorOf(http.StatusNotFound, "")

func errorOf(status int, why string) *apiError {
	switch status {
	case http.StatusUnauthorized:
		return &apiError{status: status, ID: "unauthorized", Message: "Unable to authenticate you"}
	case http.StatusForbidden:
		return &apiError{status: status, ID: "forbidden", Message: "You are not authorized to perform this operation"}
	case http.StatusNotFound:
		return &apiError{status: status, ID: "not_found", Message: "The resource you were accessing could not be found."}
	case http.StatusTooManyRequests:
		return &apiError{status: status, ID: "too_many_requests", Message: "API Rate limit exceeded."}
	case http.StatusUnprocessableEntity:
		return &apiError{status: status, ID: "unprocessable_entity", Message: why}
	case http.StatusServiceUnavailable:
		return &apiError{status: status, ID: "service_unavailable", Message: "Service is unavailable"}
	default:
		return &apiError{status: status, ID: "server_error", Message: "Unexpected server-side error"}
	}
}

func invalid(text string, arguments ...any) error {
	return errorOf(http.StatusUnprocessableEntity, fmt.Sprintf(text, arguments...))
}

func writeError(w http.ResponseWriter, err error) {
	answer := *errorOf(http.StatusInternalServerError, "")
	if known, is := err.(*apiError); is {
		answer = *known
	}
	answer.Request = newUUID()
	write(w, answer.status, answer)
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("X-Request-Id", newUUID())
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func newUUID() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// page is one page of a listing: the objects under their key, links and meta.
func page[T any](r *http.Request, key string, all []T) (int, any, error) {
	number := func(name string, unless, most int) (int, error) {
		text := r.URL.Query().Get(name)
		if text == "" {
			return unless, nil
		}
		value, err := strconv.Atoi(text)
		if err != nil || value < 1 || value > most {
			return 0, invalid("%s is not within 1 to %d", name, most)
		}
		return value, nil
	}
	size, err := number("per_page", 20, 200)
	if err != nil {
		return 0, nil, err
	}
	at, err := number("page", 1, 1<<30)
	if err != nil {
		return 0, nil, err
	}
	last := max(1, (len(all)+size-1)/size)
	from := min((at-1)*size, len(all))
	items := slices.Clone(all[from:min(from+size, len(all))])
	if items == nil {
		items = []T{}
	}
	link := func(page int) string {
		query := r.URL.Query()
		query.Set("page", strconv.Itoa(page))
		return "http://" + r.Host + r.URL.Path + "?" + query.Encode()
	}
	pages := map[string]string{}
	if at > 1 {
		pages["first"], pages["prev"] = link(1), link(at-1)
	}
	if at < last {
		pages["next"], pages["last"] = link(at+1), link(last)
	}
	links := map[string]any{}
	if len(pages) > 0 {
		links["pages"] = pages
	}
	return http.StatusOK, map[string]any{key: items, "links": links, "meta": map[string]int{"total": len(all)}}, nil
}

func ms(number int) time.Duration { return time.Duration(number) * time.Millisecond }
