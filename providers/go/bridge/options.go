package bridge

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// DeadlineHints are the deadlines that a cloud asks for.
type DeadlineHints = sdk.DeadlineHints

// Options are facts that the contract asks of a provider and that Go's interface does not have. A vendor sets defaults in its main; most have a flag.
type Options struct {
	// Version is the provider's own version.
	Version string
	// New makes a cloud that is not in the registry. The bridge calls it at the first Initialize,
	// with the controller's data about the cluster. Its error fails that Initialize, and the next
	// one calls New again. With New, Offers must be set, and also Name, unless Main gets the name.
	New func(ctx context.Context, deps Deps) (cloudprovider.Interface, error)
	// Name is the name of the cloud that New makes.
	Name string
	// CloudConfig is the path of the cloud's configuration file; empty for none.
	CloudConfig string
	// Offers are exactly the parts that the bridge offers, by the names of --offer: instances, load-balancers and so on. It is for a cloud that does
	// not know its parts before its Initialize. If unset, the bridge asks the cloud before its Initialize.
	Offers []string
	// ProviderIDPrefixes are the prefixes of the provider IDs; NAME:// unless set.
	ProviderIDPrefixes []string
	// CloudScope names the account, project and region (see ScopeTeller).
	CloudScope string
	// Classes are the load balancer classes that are served.
	Classes []string
	// OnlyClasses: the provider does not serve Services without a class.
	OnlyClasses bool
	// Features are the fields of a Service that the cloud honours.
	Features []contract.ServiceFeature
	// AllTargets: Nodes without a provider ID, or with that of another provider, can be targets too.
	AllTargets bool
	// MaxTargets is the most targets of one load balancer; 0 is no limit.
	MaxTargets uint32
	// IgnoresNodes: the targets do not matter to this cloud.
	IgnoresNodes bool
	// GetBeforeUpdate lets the bridge call GetLoadBalancer before UpdateLoadBalancer (LB-11). It is for a cloud whose UpdateLoadBalancer succeeds without
	// a load balancer. The suite's check load-balancers/update-not-found finds such clouds.
	GetBeforeUpdate bool
	// NoPowerState: the cloud does not distinguish running from stopped.
	NoPowerState bool
	// RoutesTrackAddresses: a route depends on the addresses of its Node.
	RoutesTrackAddresses bool
	// VolumeSources are the sources of volumes that are this cloud's (VOL-2).
	VolumeSources []string
	// NodeLabels are the labels of Nodes that the cloud reads; all unless set.
	NodeLabels []string
	// NodeAnnotations are the annotations of Nodes that the cloud reads; none unless set.
	NodeAnnotations []string
	// ConcurrentCalls is how many methods of the cloud may run at once; 16 if zero. It is a separate limit for instances and zones, for routes, and for
	// the rest except load balancers.
	ConcurrentCalls int
	// ConcurrentServices is how many methods of the cloud's LoadBalancer may run at once, not counting
	// GetLoadBalancerName; 1 if zero, as upstream's --concurrent-service-syncs. Many clouds have never
	// had two such calls at once.
	ConcurrentServices int
	// Deadlines asks for longer deadlines, for a cloud whose methods wait for the cloud longer than 70 % of the default ones. Zero leaves a default. The
	// controller's cap is 15 min by default.
	Deadlines DeadlineHints
	// MaxBatch is the most Nodes or routes that one call takes; 100 if zero.
	MaxBatch uint32
	// AllowUntagged ends the warning about a cloud whose HasClusterID is false.
	AllowUntagged bool
	// Kubeconfig is the file for a real client of the API server, for a cloud that needs one.
	Kubeconfig string
	// Classify returns the code for an error of the cloud, or UNSPECIFIED. The bridge itself knows the errors that Go's interface defines, such as
	// InstanceNotFound: the README has their answers. Any other error without a code is INTERNAL, or UNAVAILABLE if a context ended or no place was free.
	Classify func(error) contract.FailureCode
}

// checkNew returns an error if a field is missing for a cloud that New makes.
func (o *Options) checkNew() error {
	switch {
	case o.New == nil:
		return errors.New("there is no cloud: give one, or Options.New")
	case o.Name == "":
		return errors.New("options: Name is not set; with New it must be the ProviderName of the cloud, such as hcloud")
	case len(o.Offers) == 0:
		return fmt.Errorf("offer: the list is empty; with Options.New the bridge must know in advance what the cloud offers: write some of %s", strings.Join(partNames(), ", "))
	}
	return nil
}

// AddFlags adds a flag for each option that has one.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.Offers, "offer", o.Offers, "Exactly what the provider offers, for a cloud that cannot say it before its Initialize: "+strings.Join(partNames(), ", ")+". If it is unset, the bridge asks the cloud before its Initialize.")
	flags.StringSliceVar(&o.ProviderIDPrefixes, "provider-id-prefix", o.ProviderIDPrefixes, "What the provider IDs begin with; PROVIDER_NAME:// unless set.")
	flags.StringVar(&o.CloudConfig, "cloud-config", o.CloudConfig, "The cloud's configuration file; empty for none.")
	flags.StringVar(&o.CloudScope, "cloud-scope", o.CloudScope, "Names the account, project and region that the credentials reach, where the cloud does not say it itself; the same for every replica.")
	flags.StringSliceVar(&o.Classes, "load-balancer-class", o.Classes, "Values of spec.loadBalancerClass that are served.")
	flags.BoolVar(&o.OnlyClasses, "only-load-balancer-classes", o.OnlyClasses, "Services without a class are not served.")
	flags.Var((*features)(&o.Features), "service-feature", "Fields of a Service that the cloud honours: "+strings.Join(featureNames(), ", ")+". A Service that uses another one gets a Warning event.")
	flags.BoolVar(&o.AllTargets, "all-targets", o.AllTargets, "Nodes of no or of another provider can be targets too: for clouds that balance to plain IP addresses.")
	flags.Uint32Var(&o.MaxTargets, "max-targets", o.MaxTargets, "How many targets a load balancer takes; 0 is no limit.")
	flags.BoolVar(&o.IgnoresNodes, "ignores-nodes", o.IgnoresNodes, "The targets do not matter to this cloud.")
	flags.BoolVar(&o.GetBeforeUpdate, "get-before-update", o.GetBeforeUpdate, "Call GetLoadBalancer before each UpdateLoadBalancer: for clouds whose UpdateLoadBalancer does not fail if there is no load balancer.")
	flags.BoolVar(&o.NoPowerState, "no-power-state", o.NoPowerState, "The cloud does not distinguish running instances from stopped ones.")
	flags.BoolVar(&o.RoutesTrackAddresses, "routes-track-addresses", o.RoutesTrackAddresses, "A route depends on the addresses of its Node (EnableNodeAddresses).")
	flags.StringSliceVar(&o.VolumeSources, "volume-source", o.VolumeSources, "Sources of volumes that are this cloud's, such as awsElasticBlockStore or csi/ebs.csi.aws.com; all unless set.")
	flags.StringSliceVar(&o.NodeLabels, "node-label", o.NodeLabels, "Labels of Nodes that the cloud reads; all unless set.")
	flags.StringSliceVar(&o.NodeAnnotations, "node-annotation", o.NodeAnnotations, "Annotations of Nodes that the cloud reads.")
	flags.IntVar(&o.ConcurrentCalls, "concurrent-calls", o.ConcurrentCalls, "How many methods of the cloud may run at once for instances and zones, as many for routes, and as many for the rest except load balancers; 0 is 16.")
	flags.IntVar(&o.ConcurrentServices, "concurrent-services", o.ConcurrentServices, "How many methods of the cloud's LoadBalancer may run at once, not counting GetLoadBalancerName; 0 is 1, as upstream's --concurrent-service-syncs.")
	flags.Uint32Var(&o.MaxBatch, "max-batch", o.MaxBatch, "How many Nodes or routes one call takes; 0 is 100.")
	flags.BoolVar(&o.AllowUntagged, "allow-untagged-cloud", o.AllowUntagged, "Log nothing about a cloud that has no cluster ID (HasClusterID is false).")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "For clouds that insist on a client of the API server: without it they get a stand-in that knows only the Nodes and Services of the calls.")
}

// complete fills in the defaults, and returns the errors in the options.
func (o *Options) complete(providerName string) error {
	if o.ConcurrentCalls == 0 {
		o.ConcurrentCalls = 16
	}
	if o.ConcurrentServices == 0 {
		o.ConcurrentServices = 1
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 100
	}
	if len(o.ProviderIDPrefixes) == 0 {
		o.ProviderIDPrefixes = []string{providerName + "://"}
	}
	if o.CloudScope == "" {
		o.CloudScope = providerName
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	var wrong []error
	for flag, number := range map[string]int{"concurrent-calls": o.ConcurrentCalls, "concurrent-services": o.ConcurrentServices} {
		if number < 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d is negative; write a number such as 16", flag, number))
		}
	}
	if len(o.ProviderIDPrefixes) > 16 {
		wrong = append(wrong, fmt.Errorf("provider-id-prefix: %d prefixes; the contract allows 16", len(o.ProviderIDPrefixes)))
	}
	for at, prefix := range o.ProviderIDPrefixes {
		if len(prefix) > nameBytes || !providerIDPrefix.MatchString(prefix) {
			wrong = append(wrong, fmt.Errorf("provider-id-prefix: %q is none (PROV-8); write at most %d letters, digits and any of ._:/@+-, with :// among them, such as aws://", prefix, nameBytes))
		} else if slices.Contains(o.ProviderIDPrefixes[:at], prefix) {
			wrong = append(wrong, fmt.Errorf("provider-id-prefix: %q is there twice; write each prefix once", prefix))
		}
	}
	wrong = append(wrong, checkOffers(o.Offers))
	wrong = append(wrong, fits("cloud-scope", o.CloudScope, nameBytes))
	if err := checkScope(o.CloudScope); err != nil {
		wrong = append(wrong, fmt.Errorf("cloud-scope: %w", err))
	}
	if len(o.Classes) > 64 {
		wrong = append(wrong, fmt.Errorf("load-balancer-class: %d classes; the contract allows 64", len(o.Classes)))
	}
	for at, class := range o.Classes {
		switch {
		case class == "default":
			// The controller uses this name for Services without a class.
			wrong = append(wrong, fmt.Errorf("load-balancer-class: %q stands for Services without a class; write a name such as example.com/lb", class))
		case len(class) > nameBytes || !className.MatchString(class):
			wrong = append(wrong, fmt.Errorf("load-balancer-class: %q is no class; write 1 to %d letters, digits and any of ._:/@+-, such as example.com/lb", class, nameBytes))
		case slices.Contains(o.Classes[:at], class):
			wrong = append(wrong, fmt.Errorf("load-balancer-class: %q is there twice; write each class once", class))
		}
	}
	if o.OnlyClasses && len(o.Classes) == 0 {
		wrong = append(wrong, errors.New("only-load-balancer-classes: no class is named; name one with --load-balancer-class"))
	}
	return errors.Join(wrong...)
}

var (
	// providerIDPrefix matches the prefixes that PROV-8 allows.
	providerIDPrefix = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]*://[A-Za-z0-9._:/@+-]*$`)
	// className matches the characters of the classes that the contract allows.
	className = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)
)

// checkScope refuses a scope with a character that PROV-9 does not allow.
func checkScope(scope string) error {
	if strings.ContainsFunc(scope, notOfScope) {
		return fmt.Errorf("%q has a character that a scope may not have (PROV-9); write letters, digits, spaces and any of ._:/,@=+-", scope)
	}
	return nil
}

// notOfScope reports whether a scope may not have this character.
func notOfScope(char rune) bool {
	return !(char >= '0' && char <= '9' || char >= 'a' && char <= 'z' || char >= 'A' && char <= 'Z' || strings.ContainsRune(" ._:/,@=+-", char))
}

// features reads the names of Service features.
type features []contract.ServiceFeature

const featurePrefix = "SERVICE_FEATURE_"

func featureNames() []string {
	var names []string
	for number, name := range contract.ServiceFeature_name {
		if number != 0 {
			names = append(names, featureName(name))
		}
	}
	slices.Sort(names)
	return names
}

func featureName(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, featurePrefix), "_", "-"))
}

func (f *features) Set(text string) error {
	*f = nil
	for name := range strings.SplitSeq(text, ",") {
		number, ok := contract.ServiceFeature_value[featurePrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
		if !ok || number == 0 {
			return fmt.Errorf("%q is no feature of a Service; write some of %s", name, strings.Join(featureNames(), ", "))
		}
		*f = append(*f, contract.ServiceFeature(number))
	}
	return nil
}

func (f *features) String() string {
	var names []string
	for _, feature := range *f {
		names = append(names, featureName(feature.String()))
	}
	return strings.Join(names, ",")
}

func (f *features) Type() string { return "features" }
