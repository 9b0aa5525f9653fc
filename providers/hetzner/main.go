// Command hetzner is the provider of the cloud provider contract for Hetzner Cloud. See README.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/provider"
)

// options are the values of the command line and the environment.
type options struct {
	settings provider.Settings
	endpoint string
	peerUID  int
	family   string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(sdk.RunProbe(os.Args[2:], defaultEndpoint(os.Getenv), os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "version" {
		fmt.Println(provider.Version)
		return
	}
	o, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	server := sdk.Server{Provider: provider.New(o.settings), Endpoint: o.endpoint}
	if o.peerUID >= 0 {
		server.PeerUID = &o.peerUID
	}
	if err := server.Run(); err != nil {
		slog.Error("the provider ends", "error", err)
		os.Exit(1)
	}
}

// defaultEndpoint returns $CLOUD_PROVIDER_ENDPOINT, which the chart sets, else the contract's endpoint.
func defaultEndpoint(environment func(string) string) string {
	if endpoint := environment("CLOUD_PROVIDER_ENDPOINT"); endpoint != "" {
		return endpoint
	}
	return sdk.DefaultEndpoint
}

// parse reads the flags. The default of a flag is the environment variable that its help names, if any; most are variables of Hetzner's own controller. A variable that is no truth value, number or duration where its flag needs one is an error even if the flag is given.
func parse(arguments []string, environment func(string) string, output io.Writer) (*options, error) {
	o := &options{}
	s := &o.settings
	var wrong error
	or := func(name, unless string) string {
		if value := environment(name); value != "" {
			return value
		}
		return unless
	}
	truth := func(name string, unless bool) bool {
		value, err := strconv.ParseBool(or(name, strconv.FormatBool(unless)))
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s=%q is neither true nor false", name, environment(name)))
		}
		return value
	}
	duration := func(name string) time.Duration {
		value, err := time.ParseDuration(or(name, "0s"))
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s=%q is no duration such as 15s", name, environment(name)))
		}
		return value
	}
	retries, err := strconv.Atoi(or("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "0"))
	if err != nil {
		wrong = fmt.Errorf("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES=%q is no number", environment("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES"))
	}
	flags := flag.NewFlagSet("hetzner", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.endpoint, "endpoint", defaultEndpoint(environment), "where to serve (or CLOUD_PROVIDER_ENDPOINT)")
	flags.IntVar(&o.peerUID, "peer-uid", -1, "accept only connections of this user and of our own; if negative, of everybody whom the socket's mode admits")
	flags.StringVar(&s.APIURL, "api-url", or("HCLOUD_ENDPOINT", "https://api.hetzner.cloud/v1"), "where Hetzner Cloud's API is (or HCLOUD_ENDPOINT)")
	flags.StringVar(&s.TokenFile, "token-file", or("HCLOUD_TOKEN_FILE", ""), "the file that holds the API token, read for each call (or HCLOUD_TOKEN_FILE); else HCLOUD_TOKEN is the token")
	flags.StringVar(&s.Network, "network", or("HCLOUD_NETWORK", ""), "the name or ID of the cluster's private network (or HCLOUD_NETWORK); none where empty")
	flags.BoolVar(&s.Routes, "routes", truth("HCLOUD_NETWORK_ROUTES_ENABLED", true), "make routes in the network (or HCLOUD_NETWORK_ROUTES_ENABLED)")
	flags.BoolVar(&s.LoadBalancers, "load-balancers", truth("HCLOUD_LOAD_BALANCERS_ENABLED", true), "make load balancers (or HCLOUD_LOAD_BALANCERS_ENABLED)")
	flags.StringVar(&o.family, "address-family", or("HCLOUD_INSTANCES_ADDRESS_FAMILY", "ipv4"), "the public addresses that Nodes show: ipv4, ipv6 or dualstack (or HCLOUD_INSTANCES_ADDRESS_FAMILY)")
	flags.StringVar(&s.Type, "load-balancer-type", or("HCLOUD_LOAD_BALANCERS_TYPE", ""), "the type of load balancers whose Service says none (or HCLOUD_LOAD_BALANCERS_TYPE); lb11 for new ones where empty")
	flags.StringVar(&s.Location, "load-balancer-location", or("HCLOUD_LOAD_BALANCERS_LOCATION", ""), "the location of load balancers whose Service says none, such as fsn1 (or HCLOUD_LOAD_BALANCERS_LOCATION)")
	flags.StringVar(&s.NetworkZone, "load-balancer-network-zone", or("HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", ""), "the network zone of load balancers where no location is said, such as eu-central (or HCLOUD_LOAD_BALANCERS_NETWORK_ZONE)")
	flags.StringVar(&s.Algorithm, "load-balancer-algorithm", or("HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", ""), "round_robin or least_connections (or HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE)")
	flags.StringVar(&s.SubnetIPRange, "load-balancer-subnet", or("HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", ""), "the subnet that load balancers are attached to (or HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE)")
	flags.BoolVar(&s.UsePrivateIP, "use-private-ip", truth("HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", false), "balance to private addresses (or HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP)")
	flags.BoolVar(&s.DisablePrivateIngress, "disable-private-ingress", truth("HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", false), "show no private addresses of load balancers (or HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS)")
	flags.BoolVar(&s.DisablePublicNetwork, "disable-public-network", truth("HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", false), "load balancers without a public network (or HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK)")
	flags.BoolVar(&s.DisableIPv6, "disable-ipv6", truth("HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", false), "show no IPv6 addresses of load balancers (or HCLOUD_LOAD_BALANCERS_DISABLE_IPV6)")
	flags.BoolVar(&s.ProxyProtocol, "proxy-protocol", truth("HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", false), "speak the PROXY protocol to Nodes (or HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL)")
	flags.DurationVar(&s.HealthInterval, "health-check-interval", duration("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL"), "15s where zero (or HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL)")
	flags.DurationVar(&s.HealthTimeout, "health-check-timeout", duration("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT"), "10s where zero (or HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT)")
	flags.IntVar(&s.HealthRetries, "health-check-retries", retries, "3 where zero (or HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES)")
	flags.StringVar(&s.TargetSelector, "target-selector", "", "the servers that all load balancers balance to, by their labels in Hetzner Cloud; to those of the Nodes where empty")
	flags.BoolVar(&s.Robot, "robot-targets", truth("ROBOT_ENABLED", false), "dedicated servers are targets, by the addresses of their Nodes (or ROBOT_ENABLED)")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("the argument %q is no flag; see --help", flags.Arg(0))
	}
	s.Token = environment("HCLOUD_TOKEN")
	return o, errors.Join(wrong, check(o))
}

func check(o *options) error {
	s := &o.settings
	address, err := url.Parse(s.APIURL)
	switch {
	case err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http":
		return fmt.Errorf("--api-url %q is no URL such as https://api.hetzner.cloud/v1", s.APIURL)
	case s.TokenFile == "" && s.Token == "":
		return errors.New("there is no token: give --token-file, or set HCLOUD_TOKEN")
	case s.TokenFile == "" && strings.ContainsAny(s.Token, " \t\r\n"):
		return errors.New("HCLOUD_TOKEN has white space in it; right would be the token and nothing else")
	case s.LoadBalancers && s.TargetSelector != "" && s.Robot:
		return errors.New("--target-selector and --robot-targets (or ROBOT_ENABLED) are both given: a selector finds no dedicated servers; right would be one of the two")
	case s.Location != "" && s.NetworkZone != "":
		return errors.New("--load-balancer-location and --load-balancer-network-zone are both given; right would be one of the two")
	case s.Algorithm != "" && s.Algorithm != "round_robin" && s.Algorithm != "least_connections":
		return fmt.Errorf("--load-balancer-algorithm %q is neither round_robin nor least_connections", s.Algorithm)
	case s.HealthInterval != 0 && (s.HealthInterval < 3*time.Second || s.HealthInterval > time.Minute || s.HealthInterval%time.Second != 0):
		return fmt.Errorf("--health-check-interval %v is no number of whole seconds from 3s to 1m, such as 15s", s.HealthInterval)
	case s.HealthTimeout != 0 && (s.HealthTimeout < time.Second || s.HealthTimeout > time.Minute || s.HealthTimeout%time.Second != 0):
		return fmt.Errorf("--health-check-timeout %v is no number of whole seconds from 1s to 1m, such as 10s", s.HealthTimeout)
	case s.HealthRetries != 0 && (s.HealthRetries < 1 || s.HealthRetries > 5):
		return fmt.Errorf("--health-check-retries %d is not from 1 to 5", s.HealthRetries)
	case s.Network == "" && (s.UsePrivateIP || s.DisablePublicNetwork || s.SubnetIPRange != ""):
		return errors.New("--use-private-ip, --disable-public-network and --load-balancer-subnet need --network")
	}
	if _, _, err := net.ParseCIDR(s.SubnetIPRange); s.SubnetIPRange != "" && err != nil {
		return fmt.Errorf("--load-balancer-subnet %q is no CIDR", s.SubnetIPRange)
	}
	if _, err := labels.Parse(s.TargetSelector); err != nil {
		return fmt.Errorf("--target-selector %q is no label selector: %w", s.TargetSelector, err)
	}
	switch o.family {
	case "ipv4":
		s.IPv4 = true
	case "ipv6":
		s.IPv6 = true
	case "dualstack":
		s.IPv4, s.IPv6 = true, true
	default:
		return fmt.Errorf("--address-family %q is none of ipv4, ipv6 and dualstack", o.family)
	}
	return nil
}
