package testapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Control adds a path of the cloud to the control endpoint: "POST /_test/droplets/{name}". An error of the handler becomes 400 with its text; any
// other result is the answer, as JSON.
func (a *API) Control(pattern string, handle func(r *http.Request) (any, error)) {
	a.control.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		answer, err := handle(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answer)
	})
}

func (a *API) routes() {
	a.Control("GET /_test/calls", func(*http.Request) (any, error) { return a.Counts(), nil })
	a.Control("GET /_test/journal", func(*http.Request) (any, error) { return a.Calls(), nil })
	a.Control("DELETE /_test/journal", func(*http.Request) (any, error) { a.Forget(); return nil, nil })
	a.Control("GET /_test/writes", func(*http.Request) (any, error) { return a.Writes(), nil })
	a.Control("PUT /_test/latency", func(r *http.Request) (any, error) {
		var latency struct {
			MS int `json:"ms"`
		}
		err := Read(r, &latency)
		a.Latency(time.Duration(latency.MS) * time.Millisecond)
		return nil, err
	})
	a.Control("PUT /_test/limit", func(r *http.Request) (any, error) {
		var limit struct {
			Calls    int `json:"calls"`
			WindowMS int `json:"window_ms"`
		}
		err := Read(r, &limit)
		a.Limit(limit.Calls, time.Duration(limit.WindowMS)*time.Millisecond)
		return nil, err
	})
	a.Control("POST /_test/plans", func(r *http.Request) (any, error) {
		var plan Plan
		if err := Read(r, &plan); err != nil {
			return nil, err
		}
		return nil, a.Plan(plan)
	})
	a.Control("GET /_test/plans", func(*http.Request) (any, error) { return a.Planned(), nil })
	a.Control("DELETE /_test/plans", func(*http.Request) (any, error) { a.NoPlans(); return nil, nil })
	a.Control("PUT /_test/tokens/{token}", func(r *http.Request) (any, error) {
		var token Token
		err := Read(r, &token)
		a.Token(r.PathValue("token"), &token)
		return nil, err
	})
	a.Control("DELETE /_test/tokens/{token}", func(r *http.Request) (any, error) { a.Token(r.PathValue("token"), nil); return nil, nil })
}

// Plan adds a plan. If several plans match a call, the first that has no calls left to skip applies.
func (a *API) Plan(plan Plan) (err error) {
	if plan.expression, err = regexp.Compile(plan.Match); err != nil {
		return fmt.Errorf("match %q is no regular expression: %w", plan.Match, err)
	}
	if plan.Body != "" && plan.Status == 0 {
		plan.Status = http.StatusOK
	}
	if plan.Times == 0 {
		plan.Times = 1
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.plans = append(a.plans, &plan)
	return nil
}

// Planned returns how many plans still wait for a call.
func (a *API) Planned() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return len(a.plans)
}

// NoPlans removes all plans.
func (a *API) NoPlans() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.plans = nil
}

// Token sets the rights of a token; nil removes the token.
func (a *API) Token(name string, token *Token) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.tokens, name)
	if token != nil {
		a.tokens[name] = *token
	}
}

// Latency sets how long every call waits from now on.
func (a *API) Latency(latency time.Duration) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.latency = latency
}

// Limit sets the most calls that a token may make in a window from now on; no limit if zero. Earlier calls no longer count.
func (a *API) Limit(calls int, window time.Duration) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.limit, a.window, a.spent = calls, window, map[string][]time.Time{}
}

// Calls returns the journal.
func (a *API) Calls() []Call {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return append([]Call{}, a.calls...)
}

// Forget empties the journal.
func (a *API) Forget() {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.calls = nil
}

// Counts returns the number of calls in the journal by route.
func (a *API) Counts() map[string]int {
	counts := map[string]int{}
	for _, call := range a.Calls() {
		counts[call.Route]++
	}
	return counts
}

// Writes returns how many writing calls have succeeded; [API.Forget] does not reset the number.
func (a *API) Writes() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.writes
}

// Read reads the body of a call to the control endpoint. An unknown field is an error, but a missing body is not.
func Read(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && err != io.EOF {
		return fmt.Errorf("the body of %s %s is not valid: %w", r.Method, r.URL.Path, err)
	}
	return nil
}

// Ask makes one call to the control endpoint of a test API that runs at base, such as http://127.0.0.1:8080. It is the client of [API.Control].
func Ask(ctx context.Context, base, method, path string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+"/_test/"+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, strings.TrimSpace(string(text)))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
