package testapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// LoadBalancer is a load balancer in the API's form.
type LoadBalancer struct {
	ID                  string         `json:"id"`
	Name                string         `json:"name"`
	ProjectID           string         `json:"project_id"`
	IP                  string         `json:"ip"`
	IPv6                string         `json:"ipv6,omitempty"`
	SizeUnit            int            `json:"size_unit"`
	Size                string         `json:"size,omitempty"`
	Algorithm           string         `json:"algorithm"`
	Status              string         `json:"status"`
	Created             string         `json:"created_at"`
	ForwardingRules     []Rule         `json:"forwarding_rules"`
	HealthCheck         HealthCheck    `json:"health_check"`
	StickySessions      StickySessions `json:"sticky_sessions"`
	Region              region         `json:"region"`
	Tag                 string         `json:"tag"`
	DropletIDs          []int          `json:"droplet_ids"`
	RedirectToHTTPS     bool           `json:"redirect_http_to_https"`
	EnableProxyProtocol bool           `json:"enable_proxy_protocol"`
	EnableKeepalive     bool           `json:"enable_backend_keepalive"`
	HTTPIdleTimeout     int            `json:"http_idle_timeout_seconds"`
	VPCUUID             string         `json:"vpc_uuid"`
	SubnetUUID          string         `json:"subnet_uuid,omitempty"`
	DisableLetsEncrypt  bool           `json:"disable_lets_encrypt_dns_records"`
	Firewall            Firewall       `json:"firewall"`
	Network             string         `json:"network"`
	NetworkStack        string         `json:"network_stack"`
	Type                string         `json:"type"`
	TLSCipherPolicy     string         `json:"tls_cipher_policy"`

	made, changed, deleted time.Time
}

// Rule is a forwarding rule.
type Rule struct {
	EntryProtocol  string `json:"entry_protocol"`
	EntryPort      int    `json:"entry_port"`
	TargetProtocol string `json:"target_protocol"`
	TargetPort     int    `json:"target_port"`
	CertificateID  string `json:"certificate_id"`
	TLSPassthrough bool   `json:"tls_passthrough"`
}

// HealthCheck is the check of the targets.
type HealthCheck struct {
	Protocol           string `json:"protocol"`
	Port               int    `json:"port"`
	Path               string `json:"path"`
	Interval           int    `json:"check_interval_seconds"`
	Timeout            int    `json:"response_timeout_seconds"`
	UnhealthyThreshold int    `json:"unhealthy_threshold"`
	HealthyThreshold   int    `json:"healthy_threshold"`
}

// StickySessions bind clients to droplets.
type StickySessions struct {
	Type       string `json:"type"`
	CookieName string `json:"cookie_name,omitempty"`
	CookieTTL  int    `json:"cookie_ttl_seconds,omitempty"`
}

// Firewall has the sources that the load balancer refuses or admits.
type Firewall struct {
	Deny  []string `json:"deny"`
	Allow []string `json:"allow"`
}

// asked is the body of a POST or PUT. A missing field gets its default.
type asked struct {
	LoadBalancer
	Region     string `json:"region"`
	SizeUnit   *int   `json:"size_unit"`
	DropletIDs []int  `json:"droplet_ids"`
	IP         string `json:"ip"`
}

func defaults() asked {
	return asked{LoadBalancer: LoadBalancer{
		Algorithm: "round_robin", HTTPIdleTimeout: 60, Network: "EXTERNAL", NetworkStack: "IPV4", Type: "REGIONAL", TLSCipherPolicy: "DEFAULT",
		HealthCheck:    HealthCheck{Protocol: "http", Port: 80, Path: "/", Interval: 10, Timeout: 5, UnhealthyThreshold: 5, HealthyThreshold: 3},
		StickySessions: StickySessions{Type: "none"}, Firewall: Firewall{Deny: []string{}, Allow: []string{}},
	}}
}

// advance updates the states of droplets and load balancers by the time; the caller holds the mutex.
func (c *Cloud) advance() {
	now := time.Now()
	for _, droplet := range c.droplets {
		if droplet.Status == "new" && now.Sub(droplet.made) >= ms(c.settings.BootMS) {
			droplet.Status = "active"
		}
	}
	c.balancers = slices.DeleteFunc(c.balancers, func(lb *LoadBalancer) bool {
		return !lb.deleted.IsZero() && now.Sub(lb.deleted) >= ms(c.settings.DeleteMS)
	})
	for _, lb := range c.balancers {
		if lb.Status == "new" && now.Sub(lb.made) >= ms(c.settings.ProvisionMS) {
			c.finish(lb)
		}
		if lb.Tag == "" {
			continue
		}
		lb.DropletIDs = []int{}
		for _, droplet := range c.droplets {
			if slices.Contains(droplet.Tags, lb.Tag) {
				lb.DropletIDs = append(lb.DropletIDs, droplet.ID)
			}
		}
	}
}

func (c *Cloud) finish(lb *LoadBalancer) {
	if c.settings.Errored {
		lb.Status = "errored"
		return
	}
	lb.Status = "active"
	c.nextAddress++
	if lb.IP == "" {
		lb.IP = fmt.Sprintf("203.0.%d.%d", 113+c.nextAddress/250, c.nextAddress%250+1)
		if lb.Network == "INTERNAL" {
			lb.IP = fmt.Sprintf("10.10.%d.%d", c.nextAddress/250, c.nextAddress%250+1)
		}
	}
	if lb.NetworkStack == "DUALSTACK" {
		lb.IPv6 = fmt.Sprintf("2604:a880:800:14::%x", c.nextAddress)
	}
}

func (c *Cloud) balancerOf(id string) *LoadBalancer {
	for _, lb := range c.balancers {
		if lb.ID == id {
			return lb
		}
	}
	return nil
}

func (c *Cloud) listBalancers(r *http.Request) (int, any, error) {
	return page(r, "load_balancers", slices.DeleteFunc(slices.Clone(c.balancers), func(lb *LoadBalancer) bool { return time.Since(lb.made) < ms(c.settings.ListLagMS) }))
}

func (c *Cloud) getBalancer(r *http.Request) (int, any, error) {
	lb := c.balancerOf(r.PathValue("id"))
	if lb == nil {
		return 0, nil, errNotFound
	}
	return http.StatusOK, map[string]any{"load_balancer": lb}, nil
}

func read(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return &apiError{status: http.StatusBadRequest, ID: "bad_request", Message: "the body is not JSON of the right kind: " + err.Error()}
	}
	return nil
}

func (c *Cloud) createBalancer(r *http.Request) (int, any, error) {
	body := defaults()
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	lb := &LoadBalancer{ID: newUUID(), Status: "new", made: time.Now(), Created: time.Now().UTC().Format(time.RFC3339)}
	if err := c.check(&body, lb); err != nil {
		return 0, nil, err
	}
	if limit := c.settings.LoadBalancerLimit; limit > 0 && len(c.balancers) >= limit {
		return 0, nil, invalid("creating this load balancer will exceed your load balancer limit of %d", limit)
	}
	c.set(lb, &body)
	lb.IP = body.IP
	c.balancers = append(c.balancers, lb)
	c.advance()
	return http.StatusAccepted, map[string]any{"load_balancer": lb}, nil
}

// writable returns a load balancer, or an error if it takes no write now.
func (c *Cloud) writable(r *http.Request) (*LoadBalancer, error) {
	lb := c.balancerOf(r.PathValue("id"))
	if lb == nil || !lb.deleted.IsZero() {
		return nil, errNotFound
	}
	if lb.Status == "new" || time.Since(lb.changed) < ms(c.settings.BusyMS) {
		return nil, &apiError{status: http.StatusForbidden, ID: "forbidden", Message: "Load Balancer can't be updated while it processes previous actions"}
	}
	return lb, nil
}

func (c *Cloud) updateBalancer(r *http.Request) (int, any, error) {
	body := defaults()
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	lb, err := c.writable(r)
	if err != nil {
		return 0, nil, err
	}
	if err := c.check(&body, lb); err != nil {
		return 0, nil, err
	}
	for _, fixed := range [][3]string{{"type", lb.Type, body.Type}, {"network", lb.Network, body.Network}, {"network_stack", lb.NetworkStack, body.NetworkStack}, {"region", lb.Region.Slug, body.Region}} {
		if fixed[1] != fixed[2] {
			return 0, nil, invalid("%s cannot be changed from %s to %s", fixed[0], fixed[1], fixed[2])
		}
	}
	if body.VPCUUID != "" && body.VPCUUID != lb.VPCUUID {
		return 0, nil, invalid("vpc_uuid cannot be changed")
	}
	c.set(lb, &body)
	lb.changed = time.Now()
	c.advance()
	return http.StatusOK, map[string]any{"load_balancer": lb}, nil
}

func (c *Cloud) deleteBalancer(r *http.Request) (int, any, error) {
	lb := c.balancerOf(r.PathValue("id"))
	if lb == nil {
		return 0, nil, errNotFound
	}
	if time.Since(lb.changed) < ms(c.settings.BusyMS) {
		return 0, nil, &apiError{status: http.StatusForbidden, ID: "forbidden", Message: "Load Balancer can't be updated while it processes previous actions"}
	}
	if lb.deleted.IsZero() {
		lb.deleted = time.Now()
	}
	c.advance()
	return http.StatusNoContent, nil, nil
}

func (c *Cloud) addDroplets(r *http.Request) (int, any, error) {
	return c.setDroplets(r, func(lb *LoadBalancer, id int) error {
		if err := c.checkTarget(id, lb.Region.Slug, lb.VPCUUID); err != nil {
			return err
		}
		if !slices.Contains(lb.DropletIDs, id) {
			lb.DropletIDs = append(lb.DropletIDs, id)
		}
		return nil
	})
}

func (c *Cloud) removeDroplets(r *http.Request) (int, any, error) {
	return c.setDroplets(r, func(lb *LoadBalancer, id int) error {
		if !slices.Contains(lb.DropletIDs, id) {
			return invalid("droplet %d is not assigned to the load balancer", id)
		}
		lb.DropletIDs = slices.DeleteFunc(slices.Clone(lb.DropletIDs), func(other int) bool { return other == id })
		return nil
	})
}

func (c *Cloud) setDroplets(r *http.Request, set func(*LoadBalancer, int) error) (int, any, error) {
	var body struct {
		DropletIDs []int `json:"droplet_ids"`
	}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	lb, err := c.writable(r)
	switch {
	case err != nil:
		return 0, nil, err
	case len(body.DropletIDs) == 0:
		return 0, nil, invalid("need to provide either a tag or a list of droplets")
	case lb.Tag != "":
		return 0, nil, invalid("droplets cannot be added to or removed from a load balancer with a tag")
	}
	changed := *lb
	for _, id := range body.DropletIDs {
		if err := set(&changed, id); err != nil {
			return 0, nil, err
		}
	}
	lb.DropletIDs, lb.changed = changed.DropletIDs, time.Now()
	return http.StatusNoContent, nil, nil
}

// set replaces all settable fields of a load balancer by those of the body.
func (c *Cloud) set(lb *LoadBalancer, body *asked) {
	kept := *lb
	*lb = body.LoadBalancer
	lb.ID, lb.Status, lb.Created, lb.IP, lb.IPv6, lb.made, lb.changed, lb.deleted = kept.ID, kept.Status, kept.Created, kept.IP, kept.IPv6, kept.made, kept.changed, kept.deleted
	lb.Region, lb.DropletIDs = regionOf(body.Region), slices.Clone(body.DropletIDs)
	if lb.DropletIDs == nil {
		lb.DropletIDs = []int{}
	}
	lb.VPCUUID, lb.SubnetUUID = kept.VPCUUID, or(kept.SubnetUUID, body.SubnetUUID)
	if lb.VPCUUID == "" {
		lb.VPCUUID = body.VPCUUID
	}
	if lb.VPCUUID == "" {
		lb.VPCUUID = defaultVPC[body.Region]
	}
	if lb.ProjectID == "" {
		lb.ProjectID = "4de7ac8b-495b-4884-9a69-1050c6793cd6"
	}
	lb.SizeUnit = max(1, map[string]int{"lb-medium": 3, "lb-large": 6}[body.Size])
	if body.SizeUnit != nil {
		lb.SizeUnit = *body.SizeUnit
	}
	lb.Size = map[int]string{1: "lb-small", 3: "lb-medium", 6: "lb-large"}[lb.SizeUnit]
	lb.Algorithm = "round_robin"
	if lb.Firewall.Allow == nil {
		lb.Firewall.Allow = []string{}
	}
	if lb.Firewall.Deny == nil {
		lb.Firewall.Deny = []string{}
	}
	lb.Name = strings.TrimSpace(lb.Name)
}
