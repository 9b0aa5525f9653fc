package testapi

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Droplet is a droplet with the fields that the test API has. The description requires the fields
// from Created to Size, but no code here reads them.
type Droplet struct {
	ID       int      `json:"id"`
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	SizeSlug string   `json:"size_slug"`
	Region   region   `json:"region"`
	VPCUUID  string   `json:"vpc_uuid"`
	Networks networks `json:"networks"`
	Tags     []string `json:"tags"`

	Created          string         `json:"created_at"`
	Memory           int            `json:"memory"`
	VCPUs            int            `json:"vcpus"`
	Disk             int            `json:"disk"`
	Locked           bool           `json:"locked"`
	Features         []string       `json:"features"`
	BackupIDs        []int          `json:"backup_ids"`
	SnapshotIDs      []int          `json:"snapshot_ids"`
	VolumeIDs        []string       `json:"volume_ids"`
	NextBackupWindow any            `json:"next_backup_window"`
	Image            map[string]any `json:"image"`
	Size             map[string]any `json:"size"`

	gpu  bool
	made time.Time
}

type region struct {
	Name      string   `json:"name"`
	Slug      string   `json:"slug"`
	Features  []string `json:"features"`
	Available bool     `json:"available"`
	Sizes     []string `json:"sizes"`
}

type networks struct {
	V4 []network `json:"v4"`
	V6 []network `json:"v6"`
}

type network struct {
	IPAddress string `json:"ip_address"`
	Netmask   any    `json:"netmask"`
	Gateway   string `json:"gateway"`
	Type      string `json:"type"`
}

// Certificate is a certificate.
type Certificate struct {
	ID              string   `json:"id"`
	Name            string   `json:"name"`
	Type            string   `json:"type"`
	State           string   `json:"state"`
	NotAfter        string   `json:"not_after"`
	SHA1Fingerprint string   `json:"sha1_fingerprint"`
	Created         string   `json:"created_at"`
	DNSNames        []string `json:"dns_names"`
}

// The default network of each region.
var defaultVPC = map[string]string{"nyc1": VPC, "fra1": VPCElsewhere}

var regionNames = map[string]string{"nyc1": "New York 1", "fra1": "Frankfurt 1"}

func regionOf(slug string) region {
	return region{Name: regionNames[slug], Slug: slug, Features: []string{"private_networking", "ipv6", "metadata"}, Available: true, Sizes: []string{"s-1vcpu-1gb", "s-2vcpu-4gb"}}
}

func (c *Cloud) getAccount(*http.Request) (int, any, error) {
	return http.StatusOK, map[string]any{"account": map[string]any{
		"droplet_limit": 25, "floating_ip_limit": 5, "email": "sammy@example.com", "uuid": c.account, "email_verified": true, "status": "active", "status_message": "",
	}}, nil
}

func (c *Cloud) listRegions(r *http.Request) (int, any, error) {
	return page(r, "regions", []region{regionOf("nyc1"), regionOf("fra1")})
}

func (c *Cloud) getVPC(r *http.Request) (int, any, error) {
	id := r.PathValue("id")
	slug := map[string]string{VPC: "nyc1", VPCElsewhere: "fra1"}[id]
	if slug == "" {
		return 0, nil, errNotFound
	}
	return http.StatusOK, map[string]any{"vpc": map[string]any{
		"id": id, "urn": "do:vpc:" + id, "name": "default-" + slug, "description": "", "region": slug, "ip_range": "10.10.0.0/16", "default": true, "created_at": "2026-01-01T00:00:00Z",
	}}, nil
}

func (c *Cloud) listCertificates(r *http.Request) (int, any, error) {
	name := r.URL.Query().Get("name")
	all := slices.DeleteFunc(slices.Clone(c.certificates), func(certificate *Certificate) bool { return name != "" && certificate.Name != name })
	return page(r, "certificates", all)
}

func (c *Cloud) getCertificate(r *http.Request) (int, any, error) {
	for _, certificate := range c.certificates {
		if certificate.ID == r.PathValue("id") {
			return http.StatusOK, map[string]any{"certificate": certificate}, nil
		}
	}
	return 0, nil, errNotFound
}

func (c *Cloud) listDroplets(r *http.Request) (int, any, error) {
	query := r.URL.Query()
	if kind := query.Get("type"); kind != "" && kind != "droplets" && kind != "gpus" {
		return 0, nil, invalid("type is not droplets or gpus")
	}
	all := slices.DeleteFunc(slices.Clone(c.droplets), func(droplet *Droplet) bool {
		return droplet.gpu != (query.Get("type") == "gpus") || query.Get("name") != "" && droplet.Name != query.Get("name") ||
			query.Get("tag_name") != "" && !slices.Contains(droplet.Tags, query.Get("tag_name")) || time.Since(droplet.made) < ms(c.settings.ListLagMS)
	})
	return page(r, "droplets", all)
}

func (c *Cloud) getDroplet(r *http.Request) (int, any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		return 0, nil, errNotFound
	}
	if droplet := c.dropletOf(id); droplet != nil {
		return http.StatusOK, map[string]any{"droplet": droplet}, nil
	}
	return 0, nil, errNotFound
}

func (c *Cloud) dropletOf(id int) *Droplet {
	for _, droplet := range c.droplets {
		if droplet.ID == id {
			return droplet
		}
	}
	return nil
}
