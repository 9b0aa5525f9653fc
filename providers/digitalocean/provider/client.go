// Package provider is DigitalOcean behind the contract: it asks DigitalOcean's API, and does what package plan decides.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

const (
	// The largest page that the API gives.
	pageSize = 200
	// How long one call of the API may take.
	callTimeout = 30 * time.Second
	// The largest answer that is read: a page of 200 droplets has less than 1 MiB.
	mostAnswerBytes = 64 << 20
)

// tokens puts the token on each call. It reads the file for each, so that a token that was rotated counts at once, and asks whose account a new token is of before anything else is sent
// with it: in another account every droplet would be gone.
type tokens struct {
	base      http.RoundTripper
	file, env string
	account   func(ctx context.Context, token string) (string, error)

	mutex sync.Mutex
	// The account of Initialize, empty before it, and the last token that is known to be of it.
	expected, checked string
}

func (t *tokens) token() (string, error) {
	if t.file == "" {
		return t.env, nil
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return "", sdk.Credentials("the token's file cannot be read: %w", err).Because("TokenMissing")
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", sdk.Credentials("the file %s holds no token; right would be the token and nothing else", t.file).Because("TokenMissing")
	}
	return token, nil
}

// expect is told the account that Initialize has found with the present token; empty before it asks.
func (t *tokens) expect(account, token string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.expected, t.checked = account, token
}

func (t *tokens) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	expected, checked := t.expected, t.checked
	t.mutex.Unlock()
	if expected != "" && checked != token {
		account, err := t.account(request.Context(), token)
		if err != nil { // As a failure, so that its status is not read as an answer to this call.
			return nil, failureOf("asking whose account the new token is of", err)
		}
		if account != expected {
			return nil, sdk.Credentials("the token is of the account %s, and this provider was initialised for %s; right would be a token of that one, or a restart of the provider", account, expected).Because("AnotherAccount")
		}
		t.expect(expected, token)
	}
	return t.send(request, token)
}

func (t *tokens) send(request *http.Request, token string) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	var reader io.Reader = io.LimitReader(response.Body, mostAnswerBytes)
	if response.StatusCode == http.StatusNotFound {
		// A proxy's 404 is no word of DigitalOcean, and a Node may be deleted for it (INST-1).
		var said struct{ ID string }
		body, err := io.ReadAll(reader)
		if err != nil || json.Unmarshal(body, &said) != nil || said.ID == "" {
			response.Body.Close()
			return nil, sdk.Unavailable("%s %s: 404, and not from DigitalOcean's API: it has no error's id", request.Method, request.URL.Path).Because("NotTheAPI")
		}
		reader = bytes.NewReader(body)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{reader, response.Body}
	return response, nil
}

// client is the API. All calls of the provider go through it.
type client struct {
	*godo.Client
	tokens *tokens

	mutex   sync.Mutex
	trouble string
}

func newClient(apiURL, tokenFile, token, version string) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	t := &tokens{base: transport, file: tokenFile, env: token}
	api, err := godo.New(&http.Client{Transport: t, Timeout: callTimeout}, godo.SetBaseURL(strings.TrimSuffix(apiURL, "/")+"/"), godo.SetUserAgent("grpc-ccm-digitalocean/"+version))
	if err != nil {
		return nil, fmt.Errorf("the API's address %q: %w", apiURL, err)
	}
	t.account = func(ctx context.Context, token string) (string, error) { return accountOf(ctx, t, api, token) }
	return &client{Client: api, tokens: t}, nil
}

// Whose account a token is of: the team's, which is what owns droplets, or the user's.
func accountOf(ctx context.Context, t *tokens, api *godo.Client, token string) (string, error) {
	request, err := api.NewRequest(ctx, http.MethodGet, "v2/account", nil)
	if err != nil {
		return "", err
	}
	response, err := t.send(request, token)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if err := godo.CheckResponse(response); err != nil {
		return "", err
	}
	var root struct {
		Account *godo.Account `json:"account"`
	}
	if err := json.NewDecoder(response.Body).Decode(&root); err != nil {
		return "", fmt.Errorf("the answer of GET /v2/account: %w", err)
	}
	switch {
	case root.Account == nil || root.Account.UUID == "":
		return "", sdk.Internal("the answer of GET /v2/account has no uuid")
	case root.Account.Status == "locked":
		return "", sdk.Credentials("the account %s is locked: %s", root.Account.UUID, root.Account.StatusMessage).Because("AccountLocked")
	case root.Account.Team != nil && root.Account.Team.UUID != "":
		return root.Account.Team.UUID, nil
	default:
		return root.Account.UUID, nil
	}
}

// done tells the outcome of a call: to the SDK, which reports when the cloud last answered, and to Health. It gives the error back as the contract says it.
func (c *client) done(ctx context.Context, call *sdk.Call, what string, err error) error {
	if err == nil {
		call.CloudAnswered()
		c.note("")
		return nil
	}
	failure := failureOf(what, err)
	switch failure.Code {
	case sdk.CodeCredentials, sdk.CodeThrottled, sdk.CodeUnavailable, sdk.CodeInternal:
		// A call that was given up says nothing of the cloud.
		if ctx.Err() == nil {
			c.note(failure.Error())
		}
	default:
		c.note("")
	}
	return failure
}

func (c *client) note(trouble string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.trouble = trouble
}

func (c *client) health() string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.trouble
}

// send writes a whole load balancer. The SDK of DigitalOcean leaves an empty list of droplets out, and the API takes a body without droplets and tag for a mistake.
func (c *client) send(ctx context.Context, method, path string, lb *godo.LoadBalancerRequest) (*godo.LoadBalancer, *godo.Response, error) {
	body := struct {
		*godo.LoadBalancerRequest
		DropletIDs *[]int `json:"droplet_ids,omitempty"`
	}{LoadBalancerRequest: lb}
	if lb.Tag == "" {
		ids := append([]int{}, lb.DropletIDs...)
		body.DropletIDs = &ids
	}
	request, err := c.NewRequest(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	var root struct {
		LoadBalancer *godo.LoadBalancer `json:"load_balancer"`
	}
	response, err := c.Do(ctx, request, &root)
	if err == nil && root.LoadBalancer == nil {
		err = sdk.Internal("%s /%s: the answer has no load_balancer", method, path)
	}
	return root.LoadBalancer, response, err
}

// pages gets all pages of a listing. What changes between two pages can hide an object that is there, so a listing whose number of objects is not what the API says is got again.
func pages[T any](ctx context.Context, c *client, call *sdk.Call, what string, id func(*T) string, page func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error)) ([]T, error) {
	for range 3 {
		all := []T{}
		seen, total := map[string]bool{}, -1
		for options := (&godo.ListOptions{Page: 1, PerPage: pageSize}); ; options.Page++ {
			items, response, err := page(ctx, options)
			if err := c.done(ctx, call, what, err); err != nil {
				return nil, err
			}
			for i := range items {
				if key := id(&items[i]); !seen[key] {
					seen[key] = true
					all = append(all, items[i])
				}
			}
			if response.Meta != nil {
				total = response.Meta.Total
			}
			if response.Links == nil || response.Links.IsLastPage() || len(items) == 0 {
				break
			}
		}
		if len(all) == total {
			return all, nil
		}
		if total < 0 {
			return nil, sdk.Internal("%s: the answer does not say how many there are", what)
		}
	}
	return nil, sdk.Unavailable("%s: they changed while they were listed, three times", what).Because("ListChanged")
}

// shared lets lookups that wait before a list starts share it. One that comes while a list is being got waits for the next: it must not have an older answer, unless it says how old one may be (INST-5).
type shared[T any] struct {
	get func(context.Context, *sdk.Call) (T, error)

	mutex   sync.Mutex
	running bool
	next    *flight[T]
	last    *flight[T]
}

type flight[T any] struct {
	done   chan struct{}
	began  time.Time
	call   *sdk.Call
	answer T
	err    error
}

// How long one list may take: the lookups that wait for it have 42 s, 70 % of their 60.
const listTimeout = 40 * time.Second

func (s *shared[T]) list(ctx context.Context, call *sdk.Call, maxAge time.Duration) (answer T, err error) {
	s.mutex.Lock()
	if last := s.last; last != nil && time.Since(last.began) < maxAge {
		s.mutex.Unlock()
		return last.answer, nil
	}
	if s.next == nil {
		s.next = &flight[T]{done: make(chan struct{}), call: call}
		if !s.running {
			s.running = true
			go s.run()
		}
	}
	flight := s.next
	s.mutex.Unlock()
	select {
	case <-flight.done:
		return flight.answer, flight.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

func (s *shared[T]) run() {
	for {
		s.mutex.Lock()
		flight := s.next
		s.next = nil
		if s.running = flight != nil; flight == nil {
			s.mutex.Unlock()
			return
		}
		s.mutex.Unlock()
		s.fly(flight)
	}
}

func (s *shared[T]) fly(flight *flight[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	defer close(flight.done)
	defer func() {
		if fault := recover(); fault != nil {
			flight.err = sdk.Internal("a list could not be read: %v", fault)
		}
	}()
	flight.began = time.Now()
	if flight.answer, flight.err = s.get(ctx, flight.call); flight.err == nil {
		s.mutex.Lock()
		s.last = flight
		s.mutex.Unlock()
	}
}
