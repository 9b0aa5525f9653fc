package testapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Balancer is a load balancer in a form that is the same for all clouds.
type Balancer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Targets are names of machines.
	Addresses []string `json:"addresses"`
	Targets   []string `json:"targets"`
	// Marks are the texts that name the owner.
	Marks []string `json:"marks"`
}

// World has the changes that tests make without the cloud's API, under the same paths of the control endpoint in each cloud. M has the properties of a new
// machine, and S the settings.
type World[M, S any] struct {
	// AddMachine returns the provider ID. SetMachine sets the status of a machine by its name, in the cloud's own terms; "" removes it.
	AddMachine func(M) string
	SetMachine func(name, status string) error
	Balancers  func() []Balancer
	// AddBalancer makes a load balancer without the API, and returns its ID.
	AddBalancer    func(name string, labels map[string]string) (string, error)
	RemoveBalancer func(id string)
	Set            func(S)
	// Quota is the answer if a limit of the account is reached. Reset is the header with the time until which calls are refused.
	Quota Plan
	Reset string
}

// Fail makes all calls fail from now on, with the error of this cloud for one of the contract's codes: THROTTLED, CREDENTIALS,
// UNAVAILABLE, PRECONDITION; NONE ends it.
func (a *API) Fail(code string, quota Plan, reset string) error {
	a.NoPlans()
	plan := Plan{}
	switch code {
	case "NONE":
		return nil
	case "THROTTLED":
		plan = Plan{Status: http.StatusTooManyRequests, Header: map[string]string{reset: strconv.FormatInt(time.Now().Add(5*time.Second).Unix(), 10)}}
	case "CREDENTIALS":
		plan.Status = http.StatusUnauthorized
	case "UNAVAILABLE":
		plan.Status = http.StatusServiceUnavailable
	case "PRECONDITION":
		plan = quota
	default:
		return fmt.Errorf("the code %q is none of THROTTLED, CREDENTIALS, UNAVAILABLE, PRECONDITION and NONE", code)
	}
	plan.Times = -1
	return a.Plan(plan)
}

// Serve adds the paths of this world to the control endpoint.
func (w World[M, S]) Serve(a *API) {
	a.Control("POST /_test/machines", func(r *http.Request) (any, error) {
		var asked M
		if err := Read(r, &asked); err != nil {
			return nil, err
		}
		return w.AddMachine(asked), nil
	})
	a.Control("PUT /_test/machines/{name}/{status}", func(r *http.Request) (any, error) {
		return nil, w.SetMachine(r.PathValue("name"), r.PathValue("status"))
	})
	a.Control("DELETE /_test/machines/{name}", func(r *http.Request) (any, error) { return nil, w.SetMachine(r.PathValue("name"), "") })
	a.Control("GET /_test/balancers", func(*http.Request) (any, error) { return append([]Balancer{}, w.Balancers()...), nil })
	a.Control("POST /_test/balancers/{name}", func(r *http.Request) (any, error) {
		labels := map[string]string{}
		if err := Read(r, &labels); err != nil {
			return nil, err
		}
		return w.AddBalancer(r.PathValue("name"), labels)
	})
	a.Control("DELETE /_test/balancers/{id}", func(r *http.Request) (any, error) { w.RemoveBalancer(r.PathValue("id")); return nil, nil })
	a.Control("PUT /_test/settings", func(r *http.Request) (any, error) {
		var settings S
		err := Read(r, &settings)
		if err == nil {
			w.Set(settings)
		}
		return nil, err
	})
	a.Control("PUT /_test/fail/{code}", func(r *http.Request) (any, error) { return nil, a.Fail(r.PathValue("code"), w.Quota, w.Reset) })
}
