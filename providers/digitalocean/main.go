// Command digitalocean is the provider of the cloud provider contract for DigitalOcean. See README.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/provider"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Variables of DigitalOcean's own controller with which this provider does not start. So the
// operator learns at once that it does not have the feature.
var vendorOnly = map[string]string{
	"PUBLIC_ACCESS_FIREWALL_NAME": "this provider manages no firewall; maintain that firewall's rules by hand or with Terraform, and remove the variable",
	"PUBLIC_ACCESS_FIREWALL_TAGS": "this provider manages no firewall; maintain that firewall's rules by hand or with Terraform, and remove the variable",
	"DO_CLUSTER_ID":               "this provider marks load balancers by their names and sets no tags; remove the variable",
	"DO_API_RATE_LIMIT_QPS":       "this provider limits no rate; the ccm waits after a 429 of DigitalOcean (THROTTLED), and backs off after other failures; remove the variable",
}

var (
	slug = regexp.MustCompile(`^[a-z]{3}[0-9]+$`)
	uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	tag  = regexp.MustCompile(`^[a-zA-Z0-9_:-]{1,255}$`)
)

// options are the values of the command line and the environment.
type options struct {
	settings provider.Settings
	endpoint string
	peerUID  int
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
	if err == flag.ErrHelp {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := serve(o); err != nil {
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

func serve(o *options) error {
	digitalOcean, err := provider.New(o.settings)
	if err != nil {
		return err
	}
	server := sdk.Server{Provider: digitalOcean, Endpoint: o.endpoint}
	if o.peerUID >= 0 {
		server.PeerUID = &o.peerUID
	}
	return server.Run()
}

// parse reads the flags. The defaults of some flags are environment variables of DigitalOcean's own controller.
func parse(arguments []string, environment func(string) string, output io.Writer) (*options, error) {
	o := &options{}
	s := &o.settings
	first := func(names ...string) string {
		for _, name := range names {
			if value := environment(name); value != "" {
				return value
			}
		}
		return ""
	}
	or := func(value, unless string) string {
		if value == "" {
			return unless
		}
		return value
	}
	flags := flag.NewFlagSet("digitalocean", flag.ContinueOnError)
	flags.SetOutput(output)
	flags.StringVar(&o.endpoint, "endpoint", defaultEndpoint(environment), "where to serve (or CLOUD_PROVIDER_ENDPOINT)")
	flags.IntVar(&o.peerUID, "peer-uid", -1, "accept only connections of this user and of our own; if negative, of everybody whom the socket's mode admits")
	flags.StringVar(&s.APIURL, "api-url", or(first("DO_OVERRIDE_URL"), "https://api.digitalocean.com"), "where DigitalOcean's API is (or DO_OVERRIDE_URL)")
	flags.StringVar(&s.TokenFile, "token-file", "", "the file that holds the API token, read for each call; else DIGITALOCEAN_TOKEN or DO_ACCESS_TOKEN is the token")
	flags.StringVar(&s.Region, "region", first("REGION"), "the region of the cluster, such as nyc1 (or REGION)")
	flags.StringVar(&s.VPC, "vpc", first("DO_CLUSTER_VPC_ID"), "the UUID of the cluster's VPC (or DO_CLUSTER_VPC_ID); the region's default one where empty")
	flags.StringVar(&s.DefaultType, "default-load-balancer-type", or(first("DEFAULT_LB_TYPE"), godo.LoadBalancerTypeRegionalNetwork), "the type of load balancers whose Service says none: REGIONAL or REGIONAL_NETWORK (or DEFAULT_LB_TYPE)")
	flags.StringVar(&s.TargetTag, "target-tag", "", "the droplets' tag that load balancers balance to; to the droplets of the Nodes where empty")
	flags.BoolVar(&s.WriteID, "write-load-balancer-id", false, "give Services the annotation that DigitalOcean's own controller finds their load balancers by; for a way back")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("the argument %q is no flag; see --help", flags.Arg(0))
	}
	s.Token = first("DIGITALOCEAN_TOKEN", "DO_ACCESS_TOKEN")
	return o, check(s, environment)
}

func check(s *provider.Settings, environment func(string) string) error {
	for _, name := range slices.Sorted(maps.Keys(vendorOnly)) {
		if environment(name) != "" {
			return fmt.Errorf("%s is set: %s", name, vendorOnly[name])
		}
	}
	address, err := url.Parse(s.APIURL)
	switch {
	case err != nil || address.Host == "" || address.Scheme != "https" && address.Scheme != "http":
		return fmt.Errorf("--api-url %q is no URL such as https://api.digitalocean.com", s.APIURL)
	case s.TokenFile == "" && s.Token == "":
		return fmt.Errorf("there is no token: give --token-file, or set DIGITALOCEAN_TOKEN")
	case s.TokenFile == "" && strings.ContainsAny(s.Token, " \t\r\n"):
		return fmt.Errorf("the token in the environment has white space in it; right would be the token and nothing else")
	case !slug.MatchString(s.Region):
		return fmt.Errorf("--region %q is no region; right would be one such as nyc1", s.Region)
	case s.VPC != "" && !uuid.MatchString(s.VPC):
		return fmt.Errorf("--vpc %q is no UUID", s.VPC)
	case s.DefaultType != godo.LoadBalancerTypeRegional && s.DefaultType != godo.LoadBalancerTypeRegionalNetwork:
		return fmt.Errorf("--default-load-balancer-type %q is neither REGIONAL nor REGIONAL_NETWORK", s.DefaultType)
	case s.TargetTag != "" && !tag.MatchString(s.TargetTag):
		return fmt.Errorf("--target-tag %q is not 1 to 255 letters, digits, colons, dashes and underscores", s.TargetTag)
	}
	return nil
}
