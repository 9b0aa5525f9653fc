// Package plan decides the desired state of a load balancer of DigitalOcean, and its owner. It makes no call and reads no clock.
package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The mark of a load balancer is in its name, which is unique in an account. A marked name is
//
//	[CUSTOM.]NAMESPACE.NAME.UID.OWNER.ccm
//
// where CUSTOM is the value of the annotation for the name. Because the name is unique, the API
// refuses a create that is repeated with this name after its answer was lost, and makes no second
// load balancer.

const (
	// NameEnd is the end of a marked name.
	NameEnd = ".ccm"
	// The longest UID and owner ID that a name contains unchanged; others become this many digits of their SHA-256 (LB-30).
	idBytes = 40
	// The longest name: the contract's limit, which is below DigitalOcean's 255.
	nameBytes = 253
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// Mark names the Service and the cluster in a marked name.
type Mark struct {
	Namespace, Name, UID, Owner string
}

// part returns a text as a part of a name. Capital letters do not fit, because DigitalOcean does not document that names differ by them.
func part(text string, most int) string { return sdk.Place{Most: most, Fits: label}.Tag(text) }

// MarkOf returns the mark of this Service for this owner ID.
func MarkOf(service *sdk.Service, owner string) Mark {
	return Mark{part(service.Namespace, 63), part(service.Name, 63), part(service.UID, idBytes), part(owner, idBytes)}
}

func (m Mark) String() string {
	return strings.Join([]string{m.Namespace, m.Name, m.UID, m.Owner}, ".") + NameEnd
}

// ReadMark reads the mark in a load balancer's name; false if it has none.
func ReadMark(name string) (Mark, bool) {
	rest, marked := strings.CutSuffix(name, NameEnd)
	parts := strings.Split(rest, ".")
	if !marked || len(parts) < 4 {
		return Mark{}, false
	}
	last := parts[len(parts)-4:]
	for _, part := range last {
		if !label.MatchString(part) {
			return Mark{}, false
		}
	}
	return Mark{last[0], last[1], last[2], last[3]}, true
}

var digest = regexp.MustCompile(fmt.Sprintf(`^[0-9a-f]{%d}$`, idBytes))

// Service returns the Service that the mark names, for a listing. It has no UID if the mark holds only the UID's digits (LB-30).
func (m Mark) Service() sdk.ServiceRef {
	service := sdk.ServiceRef{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
	if digest.MatchString(service.UID) {
		service.UID = ""
	}
	return service
}

// OwnedBy reports whether the mark has this cluster's present owner ID or a previous one.
func (m Mark) OwnedBy(call *sdk.Call) bool {
	return slices.ContainsFunc(append([]string{call.Cluster.OwnerID}, call.PreviousOwnerIDs...), func(owner string) bool {
		return owner != "" && m.Owner == part(owner, idBytes)
	})
}

// VendorName is what DigitalOcean's own controller calls a Service's load balancer unless the Service names it: an "a" and the UID without dashes, cut to 32 characters.
func VendorName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

// Found is a load balancer, and its relation to a Service.
type Found struct {
	LB *godo.LoadBalancer
	// Ownership is by the mark alone (LB-27). ByName says that the name is the one that DigitalOcean's controller makes of this Service's UID.
	Ownership sdk.Ownership
	ByName    bool
}

// Judge returns a load balancer's relation to a Service.
func Judge(lb *godo.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	found := &Found{LB: lb, Ownership: sdk.Unmarked, ByName: lb.Name == VendorName(service.UID)}
	if mark, marked := ReadMark(lb.Name); marked {
		found.Ownership = sdk.Foreign
		if mark.OwnedBy(call) && mark.UID == part(service.UID, idBytes) {
			found.Ownership = sdk.Ours
		}
	}
	return found
}

// Own returns the load balancers that are marked for this Service. Those with the present owner ID come first, and within both groups the oldest.
func Own(all []godo.LoadBalancer, call *sdk.Call, service *sdk.Service) (own []*Found) {
	for i := range all {
		if found := Judge(&all[i], call, service); found.Ownership == sdk.Ours {
			own = append(own, found)
		}
	}
	present := part(call.Cluster.OwnerID, idBytes)
	slices.SortStableFunc(own, func(one, other *Found) int {
		oneMark, _ := ReadMark(one.LB.Name)
		otherMark, _ := ReadMark(other.LB.Name)
		if (oneMark.Owner == present) != (otherMark.Owner == present) {
			if oneMark.Owner == present {
				return -1
			}
			return 1
		}
		return strings.Compare(one.LB.Created, other.LB.Created)
	})
	return own
}

// Unmarked returns the unmarked load balancer with the name that DigitalOcean's controller makes of the Service's UID, or nil.
func Unmarked(all []godo.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	for i := range all {
		if found := Judge(&all[i], call, service); found.Ownership == sdk.Unmarked && found.ByName {
			return found
		}
	}
	return nil
}

// ByAddress returns the unmarked load balancer with an address of the Service's status, or nil. A name in the Service's annotation proves nothing, because
// a user can write it.
func ByAddress(all []godo.LoadBalancer, call *sdk.Call, service *sdk.Service) *Found {
	for i := range all {
		found := Judge(&all[i], call, service)
		for _, point := range service.Status.Ingress {
			if found.Ownership == sdk.Unmarked && point.IP.IsValid() && (all[i].IP == point.IP.String() || all[i].IPv6 == point.IP.String()) {
				return found
			}
		}
	}
	return nil
}

// InTheWay returns the load balancer with exactly the name that the Service's annotation asks for, or nil. Such a name does not prove that the load balancer is
// this Service's.
func InTheWay(all []godo.LoadBalancer, service *sdk.Service) *godo.LoadBalancer {
	custom := strings.TrimSpace(service.Annotations[annotationName])
	for i := range all {
		if custom != "" && all[i].Name == custom {
			return &all[i]
		}
	}
	return nil
}
