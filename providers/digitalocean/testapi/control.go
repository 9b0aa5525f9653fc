package testapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	shared "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// NewDroplet has the properties of a new droplet.
type NewDroplet struct {
	Name string `json:"name"`
	// Size is s-2vcpu-4gb, Region nyc1 and VPC the region's if empty.
	Size   string   `json:"size"`
	Region string   `json:"region"`
	VPC    string   `json:"vpc"`
	Tags   []string `json:"tags"`
	GPU    bool     `json:"gpu"`
	// IPv6 gives the droplet a public IPv6 address. Private removes its public IPv4 address.
	IPv6    bool `json:"ipv6"`
	Private bool `json:"private"`
	// Address is its address in the VPC; if empty, one made of the number of droplets.
	Address string `json:"address"`
}

// AddDroplet makes a droplet and returns its ID.
func (c *Cloud) AddDroplet(asked NewDroplet) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	slug := or(asked.Region, "nyc1")
	c.nextID++
	at := len(c.droplets) + 2
	d := &Droplet{
		ID: c.nextID, Name: asked.Name, Status: "new", SizeSlug: or(asked.Size, "s-2vcpu-4gb"), Region: regionOf(slug), Tags: append([]string{}, asked.Tags...),
		VPCUUID: or(asked.VPC, defaultVPC[slug]), Created: time.Now().UTC().Format(time.RFC3339), Memory: 4096, VCPUs: 2, Disk: 80,
		Features: []string{"private_networking"}, BackupIDs: []int{}, SnapshotIDs: []int{}, VolumeIDs: []string{}, Image: map[string]any{}, gpu: asked.GPU, made: time.Now(),
		NextBackupWindow: map[string]any{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T23:00:00Z"},
	}
	d.Size = map[string]any{
		"slug": "s-2vcpu-4gb", "memory": 4096, "vcpus": 2, "disk": 80, "transfer": 4.0, "price_monthly": 24.0, "price_hourly": 0.036, "regions": []string{"nyc1", "fra1"}, "available": true, "description": "Basic",
	}
	d.Networks.V4 = []network{{or(asked.Address, fmt.Sprintf("10.10.%d.%d", at/250, at%250+2)), "255.255.0.0", "10.10.0.1", "private"}}
	d.Networks.V6 = []network{}
	if !asked.Private {
		d.Networks.V4 = append(d.Networks.V4, network{fmt.Sprintf("198.51.%d.%d", 100+at/250, at%250+2), "255.255.255.0", "198.51.100.1", "public"})
	}
	if asked.IPv6 {
		d.Networks.V6 = append(d.Networks.V6, network{fmt.Sprintf("2604:a880:0:1010::%x", at), 64, "2604:a880:0:1010::1", "public"})
	}
	c.droplets = append(c.droplets, d)
	c.advance()
	return d.ID
}

func or(value, unless string) string {
	if value == "" {
		return unless
	}
	return value
}

// SetDroplet gives a droplet, by its name or ID, a status: "off", "active", "archive"; "" removes it.
func (c *Cloud) SetDroplet(key, status string) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for i, droplet := range c.droplets {
		if droplet.Name != key && strconv.Itoa(droplet.ID) != key {
			continue
		}
		if droplet.Status = status; status == "" {
			c.droplets = slices.Delete(c.droplets, i, i+1)
			for _, lb := range c.balancers {
				lb.DropletIDs = slices.DeleteFunc(lb.DropletIDs, func(id int) bool { return id == droplet.ID })
			}
		}
		return nil
	}
	return fmt.Errorf("there is no droplet %q", key)
}

// AddLoadBalancer makes an active load balancer without the API, and returns its ID.
func (c *Cloud) AddLoadBalancer(name string) (string, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	body := defaults()
	body.Name, body.Region, body.Tag, body.Type = name, "nyc1", "by-hand", "REGIONAL"
	body.ForwardingRules = []Rule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 30080}}
	lb := &LoadBalancer{ID: newUUID(), Status: "new", Created: time.Now().UTC().Format(time.RFC3339)}
	if err := c.check(&body, lb); err != nil {
		return "", err
	}
	c.set(lb, &body)
	c.finish(lb)
	c.balancers = append(c.balancers, lb)
	return lb.ID, nil
}

// RemoveLoadBalancer removes a load balancer without the API.
func (c *Cloud) RemoveLoadBalancer(id string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.balancers = slices.DeleteFunc(c.balancers, func(lb *LoadBalancer) bool { return lb.ID == id })
}

// ChangeLoadBalancer changes a load balancer without the API.
func (c *Cloud) ChangeLoadBalancer(id string, change func(*LoadBalancer)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if lb := c.balancerOf(id); lb != nil {
		change(lb)
	}
}

// LoadBalancers returns all load balancers.
func (c *Cloud) LoadBalancers() (all []LoadBalancer) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	for _, lb := range c.balancers {
		all = append(all, *lb)
	}
	return all
}

// AddCertificate makes a certificate and returns its ID.
func (c *Cloud) AddCertificate(name, kind string) string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	made := &Certificate{
		ID: newUUID(), Name: name, Type: kind, State: "verified", NotAfter: "2030-01-01T00:00:00Z", Created: "2026-01-01T00:00:00Z", SHA1Fingerprint: "dfcc9f57d86bf58e321c2c6c31c7a971be244ac7",
		DNSNames: []string{"www.example.com"},
	}
	c.certificates = append(c.certificates, made)
	return made.ID
}

// Set sets the behaviour of the cloud.
func (c *Cloud) Set(settings Settings) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.settings = settings
}

// AddMachines makes droplets.
func (c *Cloud) AddMachines(names ...string) {
	for _, name := range names {
		c.AddDroplet(NewDroplet{Name: name})
	}
}

// StopMachine turns a droplet off.
func (c *Cloud) StopMachine(name string) error { return c.SetDroplet(name, "off") }

func (c *Cloud) told() (all []shared.Balancer) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.advance()
	for _, lb := range c.balancers {
		told := shared.Balancer{ID: lb.ID, Name: lb.Name, Addresses: []string{lb.IP}, Targets: []string{}, Marks: []string{lb.Name}}
		for _, id := range lb.DropletIDs {
			if droplet := c.dropletOf(id); droplet != nil {
				told.Targets = append(told.Targets, droplet.Name)
			}
		}
		all = append(all, told)
	}
	return all
}

func (c *Cloud) control() {
	shared.World[NewDroplet, Settings]{
		AddMachine: func(asked NewDroplet) string { return "digitalocean://" + strconv.Itoa(c.AddDroplet(asked)) }, SetMachine: c.SetDroplet,
		Balancers: c.told, RemoveBalancer: c.RemoveLoadBalancer, Set: c.Set,
		AddBalancer: func(name string, labels map[string]string) (string, error) {
			if len(labels) > 0 {
				return "", fmt.Errorf("load balancers of DigitalOcean have no labels")
			}
			return c.AddLoadBalancer(name)
		},
		Quota: shared.Plan{Status: http.StatusUnprocessableEntity, Body: `{"id":"unprocessable_entity","message":"this will exceed your limit","request_id":"` + newUUID() + `"}`}, Reset: "Ratelimit-Reset",
	}.Serve(c.API)
	c.Control("GET /_test/load_balancers", func(*http.Request) (any, error) { return c.LoadBalancers(), nil })
	c.Control("POST /_test/certificates/{name}/{type}", func(r *http.Request) (any, error) {
		return c.AddCertificate(r.PathValue("name"), r.PathValue("type")), nil
	})
}
