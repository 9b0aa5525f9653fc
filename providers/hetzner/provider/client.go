// Package provider implements the contract for Hetzner Cloud: it calls Hetzner's API, and carries out the decisions of package plan.
package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

const (
	// The largest page that the API gives.
	pageSize = 50
	// How long one call of the API may take.
	callTimeout = 30 * time.Second
	// The largest answer that is read: a page of 50 servers has less than 1 MiB.
	mostAnswerBytes = 64 << 20
)

// tokens puts the token on each call. It reads the file for each call, so a rotated token takes effect with the next call. The API does not state the project
// of a token. So tokens first tries a new token on objects of the project, its witnesses: with a token of another project every server would seem to be gone.
type tokens struct {
	base   http.RoundTripper
	apiURL string
	secret sdk.Token

	mutex sync.Mutex
	// The last token that passed the check, and the paths of objects in the project.
	checked   string
	witnesses []string
}

// witness sets the paths of objects that the present token can read.
func (t *tokens) witness(paths ...string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if len(paths) > 0 {
		t.witnesses = paths
	}
}

func (t *tokens) RoundTrip(request *http.Request) (*http.Response, error) {
	token, err := t.secret.Read()
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	checked, witnesses := t.checked, t.witnesses
	t.mutex.Unlock()
	if checked != token {
		if err := t.check(request.Context(), token, witnesses); err != nil {
			return nil, err
		}
		t.mutex.Lock()
		t.checked = token
		t.mutex.Unlock()
	}
	return t.send(request, token)
}

// check returns an error unless a new token can read one of the witnesses. Without witnesses it accepts the token.
func (t *tokens) check(ctx context.Context, token string, witnesses []string) error {
	for _, path := range witnesses {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.apiURL+path, nil)
		if err != nil {
			return err
		}
		response, err := t.send(request, token)
		if err != nil {
			return err
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		var said struct {
			Error struct{ Code, Message string }
		}
		switch {
		case response.StatusCode == http.StatusOK:
			return nil
		case json.Unmarshal(body, &said) == nil && said.Error.Code == string(hcloud.ErrorCodeNotFound):
		case said.Error.Code != "":
			return ofCode("trying the new token", hcloud.ErrorCode(said.Error.Code), said.Error.Message, response.Header)
		default:
			return sdk.Unavailable("trying the new token: Hetzner's API answers %d", response.StatusCode).Because("APIFails")
		}
	}
	if len(witnesses) == 0 {
		return nil
	}
	return sdk.Credentials("the new token sees nothing of %s, which the old one saw: it belongs to another project; use a token of this project, or restart the provider", strings.Join(witnesses, ", ")).Because("AnotherProject")
}

func (t *tokens) send(request *http.Request, token string) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, mostAnswerBytes), response.Body}
	return response, nil
}

// client is the client of the API for all calls of the provider.
type client struct {
	*hcloud.Client
	tokens *tokens
	sdk.Trouble
}

func newClient(apiURL, tokenFile, token, version string) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	apiURL = strings.TrimSuffix(apiURL, "/")
	t := &tokens{base: transport, apiURL: apiURL, secret: sdk.Token{File: tokenFile, Value: token}}
	// The client repeats no call: the controller decides when to call again.
	api := hcloud.NewClient(hcloud.WithEndpoint(apiURL), hcloud.WithHTTPClient(&http.Client{Transport: t, Timeout: callTimeout}), hcloud.WithApplication("grpc-ccm-hetzner", version),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
	return &client{Client: api, tokens: t}
}

// done records the outcome of a call, and returns its error as a failure of the contract.
func (c *client) done(ctx context.Context, call *sdk.Call, what string, err error) error {
	if err == nil {
		return c.Done(ctx, call, nil)
	}
	return c.Done(ctx, call, failureOf(what, err))
}

const (
	// The time that a call waits for an action before it answers pending (for a route BUSY), and the
	// pause before its first check.
	actionPatience = 8 * time.Second
	firstLook      = 300 * time.Millisecond
)

var errStillRunning = errors.New("the action still runs")

// await waits for an action, with checks for at most 8 s, and returns errStillRunning if the action has not ended.
func (c *client) await(ctx context.Context, action *hcloud.Action) error {
	until := time.Now().Add(actionPatience)
	for pause := firstLook; action != nil && action.Status == hcloud.ActionStatusRunning; pause = min(2*pause, 2*time.Second) {
		if time.Now().Add(pause).After(until) {
			return errStillRunning
		}
		select {
		case <-ctx.Done():
			return errStillRunning
		case <-time.After(pause):
		}
		actions, _, err := c.Action.List(ctx, hcloud.ActionListOpts{ID: []int64{action.ID}})
		if err != nil {
			return err
		}
		if len(actions) != 1 {
			return sdk.Internal("the API does not know the action %d, which it began", action.ID)
		}
		action = actions[0]
	}
	if action == nil {
		return nil
	}
	return action.Error()
}

// deleteBalancer removes a load balancer. Hetzner's API answers with no body, as its older description says, or with an action. Hetzner's SDK reads only an
// action.
func (c *client) deleteBalancer(ctx context.Context, id int64) (*hcloud.Action, error) {
	request, err := c.NewRequest(ctx, http.MethodDelete, fmt.Sprintf("/load_balancers/%d", id), nil)
	if err != nil {
		return nil, err
	}
	answer := bytes.Buffer{}
	if _, err := c.Do(request, &answer); err != nil || answer.Len() == 0 {
		return nil, err
	}
	var said schema.ActionGetResponse
	if err := json.Unmarshal(answer.Bytes(), &said); err != nil {
		return nil, err
	}
	if said.Action.ID == 0 {
		return nil, nil
	}
	return hcloud.ActionFromSchema(said.Action), nil
}

// pages gets all pages of a listing.
func pages[T any](ctx context.Context, c *client, call *sdk.Call, what string, id func(T) int64, page func(context.Context, hcloud.ListOpts) ([]T, *hcloud.Response, error)) ([]T, error) {
	return sdk.Pages(what, id, func(number int) (sdk.Page[T], error) {
		items, response, err := page(ctx, hcloud.ListOpts{Page: number, PerPage: pageSize})
		if err := c.done(ctx, call, what, err); err != nil {
			return sdk.Page[T]{}, err
		}
		got := sdk.Page[T]{Items: items, Total: -1, Last: true}
		if meta := response.Meta.Pagination; meta != nil {
			got.Total, got.Last = meta.TotalEntries, meta.NextPage == 0
		}
		return got, nil
	})
}
