package adapter

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Config is the YAML file that --cloud-config names. An unknown key is an error.
type Config struct {
	// Endpoint is the provider's address: unix:///PATH.
	Endpoint string `json:"endpoint"`
	// OwnerID is the cluster's identity as an owner of cloud objects; the UID of the namespace
	// kube-system if empty.
	OwnerID string `json:"ownerID"`
	// PreviousOwnerIDs are the cluster's earlier owner IDs.
	PreviousOwnerIDs []string `json:"previousOwnerIDs"`
	// ClusterName is the same as --cluster-name; kubernetes if empty.
	ClusterName string `json:"clusterName"`
	// ClusterCIDRs are the same as --cluster-cidr.
	ClusterCIDRs []string `json:"clusterCIDRs"`
	// AdoptUnmarked lets the provider take over load balancers without a mark, which another Go CCM
	// made before.
	AdoptUnmarked bool `json:"adoptUnmarkedLoadBalancers"`
	// ConnectTimeout limits the wait for a provider that does not answer, at the start and when
	// leading begins; 1m if empty.
	ConnectTimeout metav1.Duration `json:"connectTimeout"`
}

const (
	unixScheme = "unix://"
	// The endpoint of the contract unless another is configured.
	defaultEndpoint = unixScheme + "/run/cloud-provider/socket/provider.sock"
)

// ReadConfig reads and checks a configuration. If text is nil, all keys have their defaults.
func ReadConfig(text io.Reader) (Config, error) {
	var config Config
	if text != nil {
		bytes, err := io.ReadAll(text)
		if err != nil {
			return config, fmt.Errorf("cannot read the cloud config: %w", err)
		}
		if err := yaml.UnmarshalStrict(bytes, &config); err != nil {
			return config, fmt.Errorf("the cloud config is wrong: %w", err)
		}
	}
	if config.Endpoint == "" {
		config.Endpoint = defaultEndpoint
	}
	if config.ClusterName == "" {
		config.ClusterName = "kubernetes"
	}
	if config.ConnectTimeout.Duration == 0 {
		config.ConnectTimeout.Duration = time.Minute
	}
	return config, config.check()
}

func (c *Config) check() error {
	var wrong []error
	path, isUnix := strings.CutPrefix(c.Endpoint, unixScheme)
	switch {
	case !isUnix || !filepath.IsAbs(path):
		wrong = append(wrong, fmt.Errorf("endpoint: %q is no Unix socket; write unix:///PATH", c.Endpoint))
	case len(path) > 107:
		wrong = append(wrong, fmt.Errorf("endpoint: the path %q has %d bytes; a Unix socket's has at most 107", path, len(path)))
	}
	for _, cidr := range c.ClusterCIDRs {
		if _, _, err := net.ParseCIDR(cidr); err != nil {
			wrong = append(wrong, fmt.Errorf("clusterCIDRs: %q is no CIDR; write one such as 10.244.0.0/16", cidr))
		}
	}
	if c.ConnectTimeout.Duration < 0 {
		wrong = append(wrong, fmt.Errorf("connectTimeout: %s is negative; write a duration such as 1m", c.ConnectTimeout.Duration))
	}
	return errors.Join(wrong...)
}
