// Package plan decides what a load balancer of Hetzner Cloud should be, whose one is, and what a server is to Kubernetes. It makes no call and knows no clock.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The labels of a load balancer. LabelService is the one that Hetzner's own controller finds its load balancers by; so either controller finds what the other has made. LabelService and
// LabelOwner together are the mark: one of them alone is none (LB-27).
const (
	LabelService   = "hcloud-ccm/service-uid"
	LabelOwner     = "grpc-ccm.io/owner-id"
	labelNamespace = "grpc-ccm.io/service-namespace"
	labelName      = "grpc-ccm.io/service-name"
)

// Owners are the values of LabelOwner that are this cluster's.
func Owners(call *sdk.Call) (values []string) {
	for _, owner := range append([]string{call.Cluster.OwnerID}, call.PreviousOwnerIDs...) {
		if owner != "" {
			values = append(values, sdk.LabelValue.Tag(owner))
		}
	}
	return values
}

// labelsOf are those of the load balancer of a Service; those of others that are there stay.
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

// VendorName is what Hetzner's own controller calls a Service's load balancer unless the Service names it.
func VendorName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

// Name is what a Service's load balancer is called. Names are unique in a project, so it has the owner ID in it: clusters of one backup have Services with the same UIDs.
func Name(call *sdk.Call, service *sdk.Service) string {
	if name := service.Annotations[AnnotationName]; name != "" {
		return name
	}
	return DerivedName(call.Cluster.OwnerID, service.UID)
}

// DerivedName is the name that follows from owner ID and UID alone.
func DerivedName(owner, uid string) string {
	sum := sha256.Sum256([]byte(owner + "/" + uid))
	return "ccm-" + hex.EncodeToString(sum[:])[:32]
}

// OwnershipOf says whose a load balancer is, by its labels alone (LB-27). One that has only the owner ID of another cluster is better called FOREIGN, which no grant adopts.
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
	// Known says that an unmarked one has a name or a label that Hetzner's controller, or this provider, gives to this Service's.
	Known bool
}

// Judge says what a load balancer is to a Service.
func Judge(lb *hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	known := lb.Labels[LabelService] == sdk.LabelValue.Tag(service.UID) || lb.Name == VendorName(service.UID) && lb.Labels[LabelService] == ""
	for _, owner := range append([]string{call.Cluster.OwnerID}, call.PreviousOwnerIDs...) {
		known = known || lb.Name == DerivedName(owner, service.UID)
	}
	return &Found{lb, OwnershipOf(lb, call, service), known}
}

// Own are the load balancers that are marked for this Service: the one of the present owner ID first, then the oldest.
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

// Unmarked is the unmarked load balancer with the label or name of this Service, or nil.
func Unmarked(all []*hcloud.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	for _, lb := range all {
		if found := Judge(lb, call, service); found.Ownership == sdk.Unmarked && found.Known {
			return found
		}
	}
	return nil
}

// ByAddress is the unmarked load balancer with an address of the Service's status, or nil.
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

// Owner is the Service that a load balancer of ours is marked for, for a listing.
func Owner(lb *hcloud.LoadBalancer) sdk.ServiceRef {
	return sdk.ServiceRef{Namespace: lb.Labels[labelNamespace], Name: lb.Labels[labelName], UID: lb.Labels[LabelService]}
}

// Handle is a load balancer's.
func Handle(lb *hcloud.LoadBalancer) string { return strconv.FormatInt(lb.ID, 10) }

// ParseID reads an ID as the API forms it; false for anything else.
func ParseID(text string) (int64, bool) {
	id, err := strconv.ParseInt(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatInt(id, 10) == text
}
