// Package provider implements the contract for DigitalOcean: it calls DigitalOcean's API, and carries out the decisions of package plan.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

// tokens puts the token on each call. It reads the file for each call, so a rotated token takes effect with the next call. After Initialize it first asks
// for the account of a new token: with a token of another account every droplet would seem to be gone.
type tokens struct {
	base    http.RoundTripper
	secret  sdk.Token
	account func(ctx context.Context, token string) (string, error)

	mutex sync.Mutex
	// The account of Initialize, empty before it, and the last token that is known to belong to this account.
	expected, checked string
}

// expect stores the account of Initialize, and a token that belongs to this account.
func (t *tokens) expect(account, token string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.expected, t.checked = account, token
}

func (t *tokens) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := t.secret.Read()
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	expected, checked := t.expected, t.checked
	t.mutex.Unlock()
	if expected != "" && checked != token {
		account, err := t.account(request.Context(), token)
		if err != nil { // A Failure, so that the status of this check does not count as the status of the call itself.
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
		// A proxy's 404 is no answer of DigitalOcean. It must not make an instance absent (INST-1).
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

// client is the client of the API for all calls of the provider.
type client struct {
	*godo.Client
	tokens *tokens
	sdk.Trouble
}

func newClient(apiURL, tokenFile, token, version string) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	t := &tokens{base: transport, secret: sdk.Token{File: tokenFile, Value: token}}
	api, err := godo.New(&http.Client{Transport: t, Timeout: callTimeout}, godo.SetBaseURL(strings.TrimSuffix(apiURL, "/")+"/"), godo.SetUserAgent("grpc-ccm-digitalocean/"+version))
	if err != nil {
		return nil, fmt.Errorf("the API's address %q: %w", apiURL, err)
	}
	t.account = func(ctx context.Context, token string) (string, error) { return accountOf(ctx, t, api, token) }
	return &client{Client: api, tokens: t}, nil
}

// accountOf returns the account of a token: the team's, which owns the droplets, or the user's.
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

// done records the outcome of a call, and returns its error as a failure of the contract.
func (c *client) done(ctx context.Context, call *sdk.Call, what string, err error) error {
	if err == nil {
		return c.Done(ctx, call, nil)
	}
	return c.Done(ctx, call, failureOf(what, err))
}

// send writes a whole load balancer. It does not use the SDK of DigitalOcean for the body: the SDK leaves out an empty list of droplets, and the API refuses a
// body without droplets and tag.
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

// pages gets all pages of a listing.
func pages[T any, K comparable](ctx context.Context, c *client, call *sdk.Call, what string, id func(T) K, page func(context.Context, *godo.ListOptions) ([]T, *godo.Response, error)) ([]T, error) {
	return sdk.Pages(what, id, func(number int) (sdk.Page[T], error) {
		items, response, err := page(ctx, &godo.ListOptions{Page: number, PerPage: pageSize})
		if err := c.done(ctx, call, what, err); err != nil {
			return sdk.Page[T]{}, err
		}
		got := sdk.Page[T]{Items: items, Total: -1, Last: response.Links == nil || response.Links.IsLastPage()}
		if response.Meta != nil {
			got.Total = response.Meta.Total
		}
		return got, nil
	})
}
