// Package testapi is the common part of the clouds' test APIs: tokens, rate limits, latency, planned failures and a journal of calls. It has no code of a
// particular cloud. A cloud's test API adds its own handler, and states in [Options] how that cloud names rights, counts calls and writes errors.
package testapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options are the particulars of a cloud.
type Options struct {
	// Handler is the cloud. It gets only calls that have passed the plans and the checks of token, rate limit and right.
	Handler http.Handler
	// Elsewhere is another account of this cloud: it gets the calls with tokens of that account. nil: there is none.
	Elsewhere http.Handler
	// Error writes an error body as the cloud does. `why` is for people; `status` is 401, 403, 429 or that of a [Plan] without a body.
	Error func(w http.ResponseWriter, status int, why string)
	// RateHeaders writes the headers that say how many calls are left; nil: none.
	RateHeaders func(header http.Header, left Rate)
	// Right names the right that a call needs, such as "droplet:read"; nil or "" if it needs none.
	Right func(r *http.Request) string
	// Route names what a call is counted as, such as "GET /v2/droplets/{id}"; nil: method and path.
	Route func(r *http.Request) string
	// Tokens are the tokens that exist from the start.
	Tokens map[string]Token
	// Limit is the most calls that a token may make in Window; no limit if zero. Calls become free again one by one.
	Limit  int
	Window time.Duration
	// Burst is the most calls that a token may make in BurstWindow; no such limit if it or Limit is zero.
	Burst       int
	BurstWindow time.Duration
	// Record gets each call as a line of JSON; nil: there is no record.
	Record io.Writer
}

// Token has the rights of a bearer token.
type Token struct {
	// Rights are the token's only rights; nil: all.
	Rights []string `json:"rights,omitempty"`
	// ReadOnly refuses all methods but GET and HEAD. Expired makes the token count as unknown.
	ReadOnly bool `json:"read_only,omitempty"`
	Expired  bool `json:"expired,omitempty"`
	// Elsewhere says that the token belongs to the other account.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// Rate says how many calls are left to a token.
type Rate struct {
	Limit, Remaining int
	// Next is the time at which the next call becomes free, and Full that at which all are free.
	Next, Full time.Time
	// Burst says that the token has reached the limit of a burst.
	Burst bool
}

// Plan changes the outcome of matching calls: their answer, delay or connection.
type Plan struct {
	// Match is a regular expression for "METHOD /path?query"; all calls if empty.
	Match string `json:"match,omitempty"`
	// The first Skip matching calls pass. The plan changes the next Times matching calls: one if Times is zero, all if it is negative.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`
	// Status, Header and Body are the answer; without a Body it has the cloud's error body.
	Status int               `json:"status,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Body   string            `json:"body,omitempty"`
	// Lose carries the call out and closes the connection without an answer. Break closes the connection, and nothing is carried out.
	Lose  bool `json:"lose,omitempty"`
	Break bool `json:"break,omitempty"`
	// DelayMS is how long the call waits first. Without Status, Lose and Break it is then carried out as usual.
	DelayMS int `json:"delay_ms,omitempty"`
	// Before runs when the call has waited, before it is carried out or answered.
	Before func() `json:"-"`

	expression *regexp.Regexp
}

// Call is one call in the journal.
type Call struct {
	Time   time.Time `json:"time"`
	Method string    `json:"method"`
	// URL is the path and the query; Route is the call's name in the counts.
	URL    string `json:"url"`
	Route  string `json:"route"`
	Status int    `json:"status"`
	// Planned says that a [Plan] made or suppressed the answer. Carried says that the cloud carried the call out nevertheless.
	Planned bool            `json:"planned,omitempty"`
	Carried bool            `json:"carried,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
}

// API is a test API: an [http.Handler] whose paths below /_test/ are its own control endpoint (see [API.Control]).
type API struct {
	options Options
	control *http.ServeMux

	mutex   sync.Mutex
	tokens  map[string]Token
	spent   map[string][]time.Time
	limit   int
	window  time.Duration
	latency time.Duration
	plans   []*Plan
	calls   []Call
	writes  int
}

// New returns a test API with these options.
func New(options Options) *API {
	a := &API{options: options, control: http.NewServeMux(), tokens: map[string]Token{}, spent: map[string][]time.Time{}, limit: options.Limit, window: options.Window}
	for name, token := range options.Tokens {
		a.tokens[name] = token
	}
	a.routes()
	return a
}

// ServeHTTP answers one call.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/_test/") {
		a.control.ServeHTTP(w, r)
		return
	}
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(request))
	call := Call{Time: time.Now(), Method: r.Method, URL: r.URL.RequestURI(), Route: r.Method + " " + r.URL.Path, Request: asJSON(request)}
	if a.options.Route != nil {
		call.Route = a.options.Route(r)
	}
	plan, wait := a.planned(r)
	select {
	case <-r.Context().Done():
		wait = 0
	case <-time.After(wait):
	}
	if plan != nil && plan.Before != nil {
		plan.Before()
	}
	answer := httptest.NewRecorder()
	if plan == nil || plan.Lose {
		a.admit(answer, r)
	}
	if plan != nil {
		call.Planned, call.Carried = plan.Status != 0 || plan.Lose || plan.Break, plan.Lose
		for name, value := range plan.Header {
			answer.Header().Set(name, value)
		}
		switch {
		case plan.Body != "":
			answer.Header().Set("Content-Type", "application/json")
			answer.WriteHeader(plan.Status)
			answer.WriteString(plan.Body)
		case plan.Status != 0:
			a.options.Error(answer, plan.Status, "a planned failure")
		case !plan.Lose && !plan.Break:
			a.admit(answer, r)
		}
	}
	call.Status, call.Answer = answer.Code, asJSON(answer.Body.Bytes())
	a.record(call)
	if plan != nil && (plan.Lose || plan.Break) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	w.Write(answer.Body.Bytes())
}

// admit checks the token, the rate limit and the right, and then passes the call to the cloud.
func (a *API) admit(w http.ResponseWriter, r *http.Request) {
	name, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a.mutex.Lock()
	token, known := a.tokens[name]
	rate, free := a.spend(name, known && !token.Expired)
	a.mutex.Unlock()
	if !known || token.Expired {
		a.options.Error(w, http.StatusUnauthorized, "the token is not known, or has expired")
		return
	}
	if a.options.RateHeaders != nil && rate.Limit > 0 {
		a.options.RateHeaders(w.Header(), rate)
	}
	right := ""
	if a.options.Right != nil {
		right = a.options.Right(r)
	}
	switch {
	case !free:
		a.options.Error(w, http.StatusTooManyRequests, "too many calls")
	case token.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		a.options.Error(w, http.StatusForbidden, "the token may only read")
	case right != "" && token.Rights != nil && !slices.Contains(token.Rights, right):
		a.options.Error(w, http.StatusForbidden, "the token lacks the right "+right)
	case token.Elsewhere && a.options.Elsewhere != nil:
		a.options.Elsewhere.ServeHTTP(w, r)
	default:
		a.options.Handler.ServeHTTP(w, r)
	}
}

// spend returns how many calls are left after this one, and whether the limits admit it; the caller holds the mutex.
func (a *API) spend(token string, known bool) (rate Rate, free bool) {
	if a.limit <= 0 || !known {
		return Rate{}, true
	}
	now := time.Now()
	spent := slices.DeleteFunc(a.spent[token], func(at time.Time) bool { return !at.Add(a.window).After(now) })
	rate = Rate{Limit: a.limit, Next: now, Full: now}
	if burst := a.options.Burst; burst > 0 && len(spent) >= burst {
		rate.Next = spent[len(spent)-burst].Add(a.options.BurstWindow)
		rate.Burst = rate.Next.After(now)
	}
	if free = len(spent) < a.limit && !rate.Burst; free {
		spent = append(spent, now)
	}
	a.spent[token] = spent
	if len(spent) > 0 {
		rate.Full = spent[len(spent)-1].Add(a.window)
	}
	if len(spent) >= a.limit {
		rate.Next = spent[len(spent)-a.limit].Add(a.window)
	}
	if !rate.Burst {
		rate.Remaining = max(0, a.limit-len(spent))
	}
	return rate, free
}

// planned returns the plan for this call, if there is one, and how long the call waits first.
func (a *API) planned(r *http.Request) (*Plan, time.Duration) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for i, plan := range a.plans {
		if !plan.expression.MatchString(r.Method + " " + r.URL.RequestURI()) {
			continue
		}
		if plan.Skip > 0 {
			plan.Skip--
			continue
		}
		found := *plan
		if plan.Times--; plan.Times == 0 {
			a.plans = slices.Delete(a.plans, i, i+1)
		}
		return &found, a.latency + time.Duration(plan.DelayMS)*time.Millisecond
	}
	return nil, a.latency
}

// The length at which the journal drops its oldest half.
const mostCalls = 40_000

func (a *API) record(call Call) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if len(a.calls) >= mostCalls {
		a.calls = append([]Call(nil), a.calls[mostCalls/2:]...)
	}
	a.calls = append(a.calls, call)
	if call.Method != http.MethodGet && call.Method != http.MethodHead && call.Status < 300 && (!call.Planned || call.Carried) {
		a.writes++
	}
	if a.options.Record != nil {
		if err := json.NewEncoder(a.options.Record).Encode(call); err != nil {
			fmt.Println("testapi: the call could not be recorded:", err)
		}
	}
}

func asJSON(body []byte) json.RawMessage {
	if !json.Valid(body) {
		return nil
	}
	return slices.Clone(body)
}
