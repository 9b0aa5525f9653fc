package testapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// AddLoadBalancer makes a load balancer, as somebody else would, and gives its ID.
func (c *Cloud) AddLoadBalancer(name string, labels map[string]string) (int64, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := c.checkName(name, 0); err != nil {
		return 0, err
	}
	c.nextID++
	n := c.nextID - 10_000
	lb := &schema.LoadBalancer{
		ID: c.nextID, Name: name, Location: locations[0], LoadBalancerType: *types[0], Labels: labels, Created: epoch, Algorithm: schema.LoadBalancerAlgorithm{Type: "round_robin"},
		PublicNet: schema.LoadBalancerPublicNet{
			Enabled: true, IPv4: schema.LoadBalancerPublicNetIPv4{ID: n, IP: fmt.Sprintf("198.51.%d.%d", 100+n/250, n%250+1)}, IPv6: schema.LoadBalancerPublicNetIPv6{ID: n, IP: fmt.Sprintf("2001:db8:ffff:%x::1", n)},
		},
		PrivateNet: []schema.LoadBalancerPrivateNet{}, Services: []schema.LoadBalancerService{}, Targets: []schema.LoadBalancerTarget{},
	}
	if lb.Labels == nil {
		lb.Labels = map[string]string{}
	}
	c.balancers = append(c.balancers, lb)
	return lb.ID, nil
}

// RemoveLoadBalancer removes a load balancer behind everybody's back.
func (c *Cloud) RemoveLoadBalancer(id int64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.balancers = slices.DeleteFunc(c.balancers, func(lb *schema.LoadBalancer) bool { return lb.ID == id })
}

// ChangeLoadBalancer changes a load balancer behind everybody's back.
func (c *Cloud) ChangeLoadBalancer(id int64, change func(*schema.LoadBalancer)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if lb := c.balancerOf(id); lb != nil {
		change(lb)
	}
}

// LoadBalancers are all that there are.
func (c *Cloud) LoadBalancers() (all []schema.LoadBalancer) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, lb := range c.balancers {
		all = append(all, *lb)
	}
	return all
}

// EndActions lets all running actions end with an error; an empty code lets them succeed.
func (c *Cloud) EndActions(code, message string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for id, action := range c.actions {
		if action.Status != "running" {
			continue
		}
		if c.ends[id] = time.Now(); code != "" {
			now := time.Now().UTC()
			action.Status, action.Finished, action.Error = "error", &now, &schema.ActionError{Code: code, Message: message}
		}
	}
}

// Fail lets all calls fail from now on in the way of one of the contract's codes: THROTTLED, CREDENTIALS, UNAVAILABLE, PRECONDITION; NONE ends it.
func (c *Cloud) Fail(code string) error {
	c.NoPlans()
	plan := shared.Plan{Times: -1, Status: map[string]int{"THROTTLED": 429, "CREDENTIALS": 401, "UNAVAILABLE": 503, "PRECONDITION": 403}[code]}
	switch code {
	case "NONE":
		return nil
	case "THROTTLED":
		plan.Header = map[string]string{"RateLimit-Reset": strconv.FormatInt(time.Now().Add(5*time.Second).Unix(), 10)}
	case "PRECONDITION":
		plan.Body = `{"error":{"code":"resource_limit_exceeded","message":"limit exceeded","details":{}}}`
	case "CREDENTIALS", "UNAVAILABLE":
	default:
		return fmt.Errorf("the code %q is none of THROTTLED, CREDENTIALS, UNAVAILABLE, PRECONDITION and NONE", code)
	}
	return c.Plan(plan)
}

func (c *Cloud) control() {
	c.Control("POST /_test/servers", func(r *http.Request) (any, error) {
		asked := NewServer{}
		if err := shared.Read(r, &asked); err != nil {
			return nil, err
		}
		return fmt.Sprintf("hcloud://%d", c.AddServer(asked)), nil
	})
	c.Control("PUT /_test/servers/{name}/{status}", func(r *http.Request) (any, error) {
		return nil, c.SetServer(r.PathValue("name"), r.PathValue("status"))
	})
	c.Control("DELETE /_test/servers/{name}", func(r *http.Request) (any, error) { return nil, c.SetServer(r.PathValue("name"), "") })
	c.Control("GET /_test/load_balancers", func(*http.Request) (any, error) { return c.LoadBalancers(), nil })
	c.Control("POST /_test/load_balancers/{name}", func(r *http.Request) (any, error) {
		id, err := c.AddLoadBalancer(r.PathValue("name"), nil)
		return strconv.FormatInt(id, 10), err
	})
	c.Control("DELETE /_test/load_balancers/{id}", func(r *http.Request) (any, error) { c.RemoveLoadBalancer(pathID(r)); return nil, nil })
	c.Control("POST /_test/routes", func(r *http.Request) (any, error) {
		var asked struct {
			CIDR   string `json:"cidr"`
			Server int64  `json:"server"`
		}
		if err := shared.Read(r, &asked); err != nil {
			return nil, err
		}
		return nil, c.AddRoute(asked.CIDR, asked.Server)
	})
	c.Control("DELETE /_test/routes", func(r *http.Request) (any, error) { c.RemoveRoute(r.URL.Query().Get("cidr")); return nil, nil })
	c.Control("PUT /_test/settings", func(r *http.Request) (any, error) {
		settings := Settings{}
		err := shared.Read(r, &settings)
		if err == nil {
			c.Set(settings)
		}
		return nil, err
	})
	c.Control("PUT /_test/fail/{code}", func(r *http.Request) (any, error) { return nil, c.Fail(r.PathValue("code")) })
}
