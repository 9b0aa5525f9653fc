package bridge

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// parts are the cloud's interfaces; nil if the cloud lacks one. Upstream's controllers ask for them after the cloud's Initialize, so some clouds make
// them there. The bridge must know the offered parts before (PROV-1), and they must not change (PROV-10).
type parts struct {
	instancesV2 cloudprovider.InstancesV2
	instances   cloudprovider.Instances
	zones       cloudprovider.Zones
	balancer    cloudprovider.LoadBalancer
	routes      cloudprovider.Routes
	clusters    cloudprovider.Clusters
	volumes     cloudprovider.PVLabeler

	lister    InstanceLister
	balancers LoadBalancerLister
	sync      SyncChecker
	owners    OwnerChecker
	scope     ScopeTeller
}

// The names of the parts, as --offer takes them.
const (
	partInstances       = "instances"
	partInstanceListing = "instance-listing"
	partZones           = "zones"
	partBalancers       = "load-balancers"
	partBalancerListing = "load-balancer-listing"
	partInSync          = "in-sync"
	partRoutes          = "routes"
	partClusters        = "clusters"
	partVolumes         = "volumes"
)

// whence names, for each part, the method of Go's interface or the optional interface from which the part comes.
var whence = map[string]string{
	partInstances:       "InstancesV2() or Instances()",
	partInstanceListing: "InstanceLister",
	partZones:           "Zones()",
	partBalancers:       "LoadBalancer()",
	partBalancerListing: "LoadBalancerLister",
	partInSync:          "SyncChecker",
	partRoutes:          "Routes()",
	partClusters:        "Clusters()",
	partVolumes:         "PVLabeler",
}

// within names, for each part that needs another one, that other part.
var within = map[string]string{partInstanceListing: partInstances, partBalancerListing: partBalancers, partInSync: partBalancers}

// partSet are parts by their names.
type partSet map[string]bool

func (s partSet) names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool { return !s[name] })
}

func partNames() []string { return slices.Sorted(maps.Keys(whence)) }

// checkOffers returns an error for an unknown name of a part, or for a part without the one that it needs.
func checkOffers(names []string) error {
	for _, name := range names {
		if _, known := whence[name]; !known {
			return fmt.Errorf("offer: %q is no part of a cloud; write some of %s", name, strings.Join(partNames(), ", "))
		}
		if whole, ok := within[name]; ok && !slices.Contains(names, whole) {
			return fmt.Errorf("offer: %s is nothing without %s; name that too", name, whole)
		}
	}
	return nil
}

// offersOf returns the parts that the operator or vendor names, or else those that the cloud has before its Initialize.
func offersOf(cloud cloudprovider.Interface, said []string) partSet {
	if len(said) == 0 {
		_, told := partsOf(cloud, nil)
		return told
	}
	offers := partSet{}
	for _, name := range said {
		offers[name] = true
	}
	return offers
}

// partsOf asks the cloud for its parts. told also has the parts for which the cloud returns a nil pointer: before Initialize, this says that the
// cloud will offer the part. A part that panics counts as missing if offers lacks it; otherwise the panic continues. nil offers mean all parts.
func partsOf(cloud cloudprovider.Interface, offers partSet) (found parts, told partSet) {
	told = partSet{}
	ask := func(part string, work func()) {
		if offers != nil && !offers[part] {
			_, _ = guarded(part, func() struct{} { work(); return struct{}{} })
		} else {
			work()
		}
	}
	var newer bool
	ask(partInstances, func() {
		var instances cloudprovider.InstancesV2
		if instances, newer = cloud.InstancesV2(); newer {
			lister, lists := optional[InstanceLister](instances, cloud)
			found.instancesV2, found.lister = solid(instances), solid(lister)
			told[partInstances], told[partInstanceListing] = true, lists
		} else if instances, ok := cloud.Instances(); ok {
			// As upstream, the bridge uses the older Instances only without InstancesV2. Options.Offers can add Zones.
			lister, lists := optional[InstanceLister](instances, cloud)
			found.instances, found.lister = solid(instances), solid(lister)
			told[partInstances], told[partInstanceListing] = true, lists
		}
	})
	if !newer || offers[partZones] {
		ask(partZones, func() {
			if zones, ok := cloud.Zones(); ok {
				found.zones, told[partZones] = solid(zones), true
			}
		})
	}
	ask(partBalancers, func() {
		if balancer, ok := cloud.LoadBalancer(); ok {
			lister, lists := optional[LoadBalancerLister](balancer, cloud)
			sync, syncs := optional[SyncChecker](balancer, cloud)
			owners, _ := optional[OwnerChecker](balancer, cloud)
			found.balancer, found.balancers, found.sync, found.owners = solid(balancer), solid(lister), solid(sync), solid(owners)
			told[partBalancers], told[partBalancerListing], told[partInSync] = true, lists, syncs
		}
	})
	ask(partRoutes, func() {
		if routes, ok := cloud.Routes(); ok {
			found.routes, told[partRoutes] = solid(routes), true
		}
	})
	ask(partClusters, func() {
		if clusters, ok := cloud.Clusters(); ok {
			found.clusters, told[partClusters] = solid(clusters), true
		}
	})
	found.volumes, told[partVolumes] = cloud.(cloudprovider.PVLabeler)
	found.scope, _ = cloud.(ScopeTeller)
	return found, told
}

// solid returns nil for a nil pointer of any type, because a call of its methods could panic.
func solid[Part any](part Part) Part {
	if value := reflect.ValueOf(part); value.Kind() == reflect.Pointer && value.IsNil() {
		var none Part
		return none
	}
	return part
}

// has returns the parts that are not nil.
func (p *parts) has() partSet {
	return partSet{
		partInstances:       p.instancesV2 != nil || p.instances != nil,
		partInstanceListing: p.lister != nil,
		partZones:           p.zones != nil,
		partBalancers:       p.balancer != nil,
		partBalancerListing: p.balancers != nil,
		partInSync:          p.sync != nil,
		partRoutes:          p.routes != nil,
		partClusters:        p.clusters != nil,
		partVolumes:         p.volumes != nil,
	}
}

// only leaves out the listings and in_sync if they are not offered, because no caller expects them.
func (p parts) only(offers partSet) *parts {
	if !offers[partInstanceListing] {
		p.lister = nil
	}
	if !offers[partBalancerListing] {
		p.balancers = nil
	}
	if !offers[partInSync] {
		p.sync = nil
	}
	return &p
}

// broken returns the offered parts that are missing after the cloud's Initialize, and the remedy; empty if none is.
func broken(offers, has, told partSet, said bool) string {
	var missing []string
	for _, name := range offers.names() {
		switch {
		case has[name]:
		case told[name]:
			missing = append(missing, fmt.Sprintf("%s (%s gives a nil pointer)", name, whence[name]))
		default:
			missing = append(missing, fmt.Sprintf("%s (no %s)", name, whence[name]))
		}
	}
	if len(missing) == 0 {
		return ""
	}
	promise := "it offered them before"
	if said {
		promise = "--offer names them"
	}
	advice := "the bridge asks again with the next Initialize; if the error does not pass, correct the cloud's configuration and restart the provider"
	if left := has.names(); len(left) > 0 {
		advice += ", or start it with --offer=" + strings.Join(left, ",") + ", which is all that exists"
	}
	return fmt.Sprintf("after its own Initialize the cloud lacks %s, although %s: %s", strings.Join(missing, ", "), promise, advice)
}

// beyond returns the parts that exist but are not offered, and the flag that would offer them too.
func beyond(offers, has partSet) (more []string, flag string) {
	more = slices.DeleteFunc(has.names(), func(name string) bool { return offers[name] })
	all := append(offers.names(), more...)
	slices.Sort(all)
	return more, "--offer=" + strings.Join(all, ",")
}

// take stores the parts that the cloud has after its own Initialize. It fails if an offered part is missing.
func (b *Bridge) take() error {
	type outcome struct {
		found parts
		told  partSet
	}
	answer, err := guarded("for its parts", func() outcome {
		found, told := partsOf(b.cloud, b.offers)
		return outcome{found, told}
	})
	if err != nil {
		return err
	}
	has := answer.found.has()
	if text := broken(b.offers, has, answer.told, len(b.options.Offers) > 0); text != "" {
		return &refusal{fail(contract.FailureCode_FAILURE_CODE_PRECONDITION, "PartMissing", "%s", text)}
	}
	if more, flag := beyond(b.offers, has); len(more) > 0 {
		klog.InfoS("After its own Initialize the cloud has more than is offered; to offer it too, set the flag (or Options.Offers)",
			"notOffered", strings.Join(more, ","), "flag", flag)
	}
	b.taken.Store(answer.found.only(b.offers))
	return nil
}

// parts returns the parts that the cloud has after its own Initialize; none before.
func (b *Bridge) parts() *parts {
	if taken := b.taken.Load(); taken != nil {
		return taken
	}
	return &parts{}
}
