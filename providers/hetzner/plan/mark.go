// Package plan computes the desired state of a load balancer of Hetzner Cloud, its owner, the calls
// for it, and the instance for a server. It returns the calls and makes none itself. It reads no
// clock.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The labels of a load balancer. Hetzner's own controller finds its load balancers by LabelService. So each controller finds the load balancers of the
// other. LabelService and LabelOwner together are the mark; one of them alone is no mark (LB-27).
const (
	LabelService   = "hcloud-ccm/service-uid"
	LabelOwner     = "grpc-ccm.io/owner-id"
	labelNamespace = "grpc-ccm.io/service-namespace"
	labelName      = "grpc-ccm.io/service-name"
)

// Owners returns this cluster's values of LabelOwner.
func Owners(call *sdk.Call) (values []string) {
	for _, owner := range append([]string{call.Cluster.OwnerID}, call.PreviousOwnerIDs...) {
		if owner != "" {
			values = append(values, sdk.LabelValue.Tag(owner))
		}
	}
	return values
}

// labelsOf returns the labels of a Service's load balancer. Existing labels of others stay.
func labelsOf(there map[string]string, call *sdk.Call, service *sdk.Service) map[string]string {
	wanted := map[string]string{}
	for key, value := range there {
		wanted[key] = value
	}
	wanted[LabelService], wanted[LabelOwner] = sdk.LabelValue.Tag(service.UID), sdk.LabelValue.Tag(call.Cluster.OwnerID)
	for key, value := range map[string]string{labelNamespace: service.Namespace, labelName: service.Name} {
		delete(wanted, key)
		if value != "" && sdk.LabelValue.Tag(value) == value {
			wanted[key] = value
		}
	}
	return wanted
}

// VendorName returns the name that Hetzner's own controller gives to a Service's load balancer, unless the Service names it.
func VendorName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

// Name returns the name for a Service's load balancer: that of the annotation, else a derived one. Names are unique in a project, and clusters of one backup
// have Services with the same UIDs. So the derived name depends on the owner ID too.
func Name(call *sdk.Call, service *sdk.Service) string {
	if name := service.Annotations[AnnotationName]; name != "" {
		return name
	}
	return DerivedName(call.Cluster.OwnerID, service.UID)
}

// DerivedName returns the name that depends only on owner ID and UID.
func DerivedName(owner, uid string) string {
	sum := sha256.Sum256([]byte(owner + "/" + uid))
	return "ccm-" + hex.EncodeToString(sum[:])[:32]
}

// OwnershipOf returns the owner of a load balancer by its labels alone (LB-27). A load balancer with only the owner ID of another cluster is FOREIGN, so that
// no grant adopts it.
func OwnershipOf(lb *hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) sdk.Ownership {
	owner, uid := lb.Labels[LabelOwner], lb.Labels[LabelService]
	switch {
	case owner == "":
		return sdk.Unmarked
	case !slices.Contains(Owners(call), owner):
		return sdk.Foreign
	case uid == sdk.LabelValue.Tag(service.UID):
		return sdk.Ours
	case uid == "":
		return sdk.Unmarked
	default:
		return sdk.Foreign
	}
}

// Found is a load balancer, and its relation to a Service.
type Found struct {
	LB        *hcloud.LoadBalancer
	Ownership sdk.Ownership
	// Known says that the load balancer has a name or a label that Hetzner's controller, or this provider, gives to this Service's load balancer.
	Known bool
}

// Judge returns a load balancer's relation to a Service.
func Judge(lb *hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	known := lb.Labels[LabelService] == sdk.LabelValue.Tag(service.UID) || lb.Name == VendorName(service.UID) && lb.Labels[LabelService] == ""
	for _, owner := range append([]string{call.Cluster.OwnerID}, call.PreviousOwnerIDs...) {
		known = known || lb.Name == DerivedName(owner, service.UID)
	}
	return &Found{lb, OwnershipOf(lb, call, service), known}
}

// Own returns the load balancers that are marked for this Service. Those with the present owner ID come first, and within both groups the one with the lowest ID.
func Own(all []*hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) (own []*Found) {
	for _, lb := range all {
		if found := Judge(lb, call, service); found.Ownership == sdk.Ours {
			own = append(own, found)
		}
	}
	present := sdk.LabelValue.Tag(call.Cluster.OwnerID)
	slices.SortStableFunc(own, func(one, other *Found) int {
		if first := one.LB.Labels[LabelOwner] == present; first != (other.LB.Labels[LabelOwner] == present) {
			if first {
				return -1
			}
			return 1
		}
		return int(one.LB.ID - other.LB.ID)
	})
	return own
}

// Unmarked returns the unmarked load balancer with the label or name of this Service, or nil.
func Unmarked(all []*hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	for _, lb := range all {
		if found := Judge(lb, call, service); found.Ownership == sdk.Unmarked && found.Known {
			return found
		}
	}
	return nil
}

// ByAddress returns the unmarked load balancer with an address of the Service's status, or nil.
func ByAddress(all []*hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	for _, lb := range all {
		found := Judge(lb, call, service)
		for _, point := range service.Status.Ingress {
			if found.Ownership != sdk.Unmarked || !point.IP.IsValid() {
				continue
			}
			if address := point.IP.String(); lb.PublicNet.IPv4.IP.String() == address || lb.PublicNet.IPv6.IP.String() == address {
				return found
			}
		}
	}
	return nil
}

var digest = regexp.MustCompile(`^[0-9a-f]{63}$`)

// Owner returns the Service for which a load balancer of ours is marked, for a listing. It has no UID if the mark holds only the UID's digits (LB-30).
func Owner(lb *hcloud.LoadBalancer) sdk.ServiceRef {
	owner := sdk.ServiceRef{Namespace: lb.Labels[labelNamespace], Name: lb.Labels[labelName], UID: lb.Labels[LabelService]}
	if digest.MatchString(owner.UID) {
		owner.UID = ""
	}
	return owner
}

// Handle returns the handle of a load balancer: its ID.
func Handle(lb *hcloud.LoadBalancer) string { return strconv.FormatInt(lb.ID, 10) }

// ParseID reads an ID as the API forms it; false for anything else.
func ParseID(text string) (int64, bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatInt(id, 10) == text
}
