package testapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A cloud that counts its create calls.
func serve(t *testing.T, options Options) (*API, string, *int) {
	t.Helper()
	made := 0
	options.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			made++
		}
		fmt.Fprintf(w, `{"made":%d}`, made)
	})
	options.Error = func(w http.ResponseWriter, status int, why string) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(map[string]string{"why": why})
	}
	api := New(options)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return api, server.URL, &made
}

func ask(t *testing.T, method, url, token string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

func TestTokensAreRefusedByWhatTheyLack(t *testing.T) {
	right := func(r *http.Request) string { return "thing:" + r.Method }
	_, url, made := serve(t, Options{Right: right, Tokens: map[string]Token{"all": {}, "reads": {ReadOnly: true}, "old": {Expired: true}, "few": {Rights: []string{"thing:GET"}}}})
	for _, row := range []struct {
		token, method string
		status        int
	}{
		{"all", "POST", 200}, {"", "GET", 401}, {"other", "GET", 401}, {"old", "GET", 401}, {"reads", "GET", 200}, {"reads", "POST", 403}, {"few", "GET", 200}, {"few", "POST", 403},
	} {
		response, body, err := ask(t, row.method, url+"/things", row.token)
		if err != nil || response.StatusCode != row.status {
			t.Errorf("%s with the token %q: %v %v %s; wanted %d", row.method, row.token, response, err, body, row.status)
		}
	}
	if *made != 1 {
		t.Errorf("%d things were made; only the first token may", *made)
	}
}

func TestTheRateLimitRefusesAndCallsBecomeFreeAgain(t *testing.T) {
	headers := func(h http.Header, rate Rate) {
		h.Set("Remaining", fmt.Sprint(rate.Remaining))
		h.Set("Next", fmt.Sprint(rate.Next.UnixMilli()))
	}
	api, url, _ := serve(t, Options{Tokens: map[string]Token{"t": {}}, RateHeaders: headers, Limit: 2, Window: time.Hour})
	for i, status := range []int{200, 200, 429} {
		response, _, err := ask(t, "GET", url, "t")
		if err != nil || response.StatusCode != status || response.Header.Get("Remaining") != fmt.Sprint(max(0, 1-i)) {
			t.Errorf("call %d: %v %v; wanted %d", i, response, err, status)
		}
	}
	api.Limit(2, time.Nanosecond)
	if response, _, err := ask(t, "GET", url, "t"); err != nil || response.StatusCode != 200 {
		t.Errorf("after the window: %v %v", response, err)
	}
}

func TestABurstIsRefusedBeforeTheLimitIsReached(t *testing.T) {
	headers := func(h http.Header, rate Rate) { h.Set("Burst", fmt.Sprint(rate.Burst, rate.Remaining)) }
	_, url, _ := serve(t, Options{Tokens: map[string]Token{"t": {}}, RateHeaders: headers, Limit: 100, Window: time.Hour, Burst: 1, BurstWindow: time.Minute})
	for _, wanted := range []string{"200 false 99", "429 true 0"} {
		response, _, err := ask(t, "GET", url, "t")
		if err != nil || fmt.Sprint(response.StatusCode, " ", response.Header.Get("Burst")) != wanted {
			t.Errorf("%v %v; wanted %s", response, err, wanted)
		}
	}
}

func TestPlansReplaceLoseAndBreakCalls(t *testing.T) {
	api, url, made := serve(t, Options{Tokens: map[string]Token{"t": {}}})
	for _, plan := range []Plan{
		{Match: "^POST /a$", Skip: 1, Status: 503, Header: map[string]string{"Retry-After": "7"}},
		{Match: "^POST /lose$", Lose: true},
		{Match: "^POST /break$", Break: true},
	} {
		if err := Ask(t.Context(), url, "POST", "plans", plan, nil); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func(wanted int) {
		t.Helper()
		var plans int
		if err := Ask(t.Context(), url, "GET", "plans", nil, &plans); err != nil || plans != wanted {
			t.Errorf("%d plans wait, %v; wanted %d", plans, err, wanted)
		}
	}
	waiting(3)
	for _, row := range []struct {
		path         string
		status, made int
	}{{"/a", 200, 1}, {"/a", 503, 1}, {"/a", 200, 2}, {"/lose", 0, 3}, {"/break", 0, 3}} {
		response, _, err := ask(t, "POST", url+row.path, "t")
		if (row.status == 0) != (err != nil) || err == nil && response.StatusCode != row.status || *made != row.made {
			t.Errorf("%s: %v %v, %d were made; wanted %d, and %d made", row.path, response, err, *made, row.status, row.made)
		}
		if row.status == 503 && response.Header.Get("Retry-After") != "7" {
			t.Errorf("the planned header is missing: %v", response.Header)
		}
	}
	waiting(0)
	if api.Writes() != 3 || api.Counts()["POST /a"] != 3 {
		t.Errorf("%d writes, %v", api.Writes(), api.Counts())
	}
	if err := Ask(t.Context(), url, "POST", "plans", Plan{Match: "("}, nil); err == nil || !strings.Contains(err.Error(), "no regular expression") {
		t.Errorf("a plan that cannot be read: %v", err)
	}
}

func TestTheControlEndpointSetsTokensAndLatencyAndTellsTheJournal(t *testing.T) {
	_, url, _ := serve(t, Options{})
	for path, body := range map[string]any{"tokens/new": Token{}, "latency": map[string]int{"ms": 30}} {
		if err := Ask(t.Context(), url, "PUT", path, body, nil); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	if response, _, err := ask(t, "POST", url+"/b?c=d", "new"); err != nil || response.StatusCode != 200 || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("%v %v after %s", response, err, time.Since(begin))
	}
	var calls []Call
	if err := Ask(t.Context(), url, "GET", "journal", nil, &calls); err != nil || len(calls) != 1 || calls[0].URL != "/b?c=d" || string(calls[0].Request) != `{"a":1}` || string(calls[0].Answer) != `{"made":1}` {
		t.Errorf("%v %+v", err, calls)
	}
	if err := Ask(t.Context(), url, "PUT", "latency", map[string]int{"seconds": 1}, nil); err == nil {
		t.Error("an unknown field was taken")
	}
}
