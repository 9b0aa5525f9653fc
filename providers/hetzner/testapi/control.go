package testapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// AddLoadBalancer makes a load balancer without the API, and returns its ID.
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

// RemoveLoadBalancer removes a load balancer without the API.
func (c *Cloud) RemoveLoadBalancer(id int64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.balancers = slices.DeleteFunc(c.balancers, func(lb *schema.LoadBalancer) bool { return lb.ID == id })
}

// ChangeLoadBalancer changes a load balancer without the API.
func (c *Cloud) ChangeLoadBalancer(id int64, change func(*schema.LoadBalancer)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if lb := c.balancerOf(id); lb != nil {
		change(lb)
	}
}

// LoadBalancers returns all load balancers.
func (c *Cloud) LoadBalancers() (all []schema.LoadBalancer) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, lb := range c.balancers {
		all = append(all, *lb)
	}
	return all
}

// EndActions ends all running actions with this error; with an empty code they succeed.
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

// AddMachines makes servers in the network.
func (c *Cloud) AddMachines(names ...string) {
	for _, name := range names {
		c.AddServer(NewServer{Name: name})
	}
}

// StopMachine turns a server off.
func (c *Cloud) StopMachine(name string) error { return c.SetServer(name, "off") }

func (c *Cloud) told() (all []shared.Balancer) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, lb := range c.balancers {
		told := shared.Balancer{ID: strconv.FormatInt(lb.ID, 10), Name: lb.Name, Addresses: []string{lb.PublicNet.IPv4.IP, lb.PublicNet.IPv6.IP}, Targets: []string{}, Marks: []string{}}
		for _, target := range lb.Targets {
			for _, one := range append([]schema.LoadBalancerTarget{target}, target.Targets...) {
				if one.Server == nil {
					continue
				}
				if server := c.serverOf(one.Server.ID); server != nil {
					told.Targets = append(told.Targets, server.Name)
				}
			}
		}
		for _, key := range slices.Sorted(maps.Keys(lb.Labels)) {
			told.Marks = append(told.Marks, key+" "+lb.Labels[key])
		}
		all = append(all, told)
	}
	return all
}

func (c *Cloud) control() {
	shared.World[NewServer, Settings]{
		AddMachine: func(asked NewServer) string { return fmt.Sprintf("hcloud://%d", c.AddServer(asked)) }, SetMachine: c.SetServer,
		Balancers: c.told, Set: c.Set,
		AddBalancer: func(name string, labels map[string]string) (string, error) {
			id, err := c.AddLoadBalancer(name, labels)
			return strconv.FormatInt(id, 10), err
		},
		RemoveBalancer: func(id string) {
			number, _ := strconv.ParseInt(id, 10, 64)
			c.RemoveLoadBalancer(number)
		},
		Quota: shared.Plan{Status: http.StatusForbidden, Body: `{"error":{"code":"resource_limit_exceeded","message":"limit exceeded","details":{}}}`}, Reset: "RateLimit-Reset",
	}.Serve(c.API)
	c.Control("GET /_test/load_balancers", func(*http.Request) (any, error) { return c.LoadBalancers(), nil })
	c.Control("DELETE /_test/actions", func(*http.Request) (any, error) { c.EndActions("", ""); return nil, nil })
	c.Control("GET /_test/routes", func(*http.Request) (any, error) { return c.Routes(), nil })
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
}
