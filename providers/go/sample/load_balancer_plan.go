package main

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Finds a Service's load balancer and computes its desired state: plain functions of the cloud's state, the Service and the caller.

// Asker is the call, the Service that it is about, and the handle.
type Asker struct {
	*sdk.Call
	service *sdk.Service
	handle  string
}

func (a *Asker) ownership(lb *LoadBalancer) sdk.Ownership {
	switch {
	case lb.Owner == nil:
		return sdk.Unmarked
	case lb.Owner.UID == a.service.UID && a.Owns(lb.Owner.OwnerID):
		return sdk.Ours
	default:
		return sdk.Foreign
	}
}

func (a *Asker) mark() *Mark {
	return &Mark{OwnerID: a.Cluster.OwnerID, Namespace: a.service.Namespace, Name: a.service.Name, UID: a.service.UID}
}

func nativeName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

// findOwn returns the Service's own load balancer, by the handle, which a user can edit (LB-4), else by the mark (LB-5).
func findOwn(state *State, a *Asker) (*LoadBalancer, error) {
	own, _, err := sdk.FindOwn(state.Living(), a.handle, false, func(lb *LoadBalancer) string { return lb.Handle }, a.ownership)
	return own, err
}

// findToDelete returns the Service's own load balancer, else the unmarked one with its native name. Without the grant the latter is CONFLICT, never done
// (LB-26). With the grant the unmarked one comes first if the handle names it.
func findToDelete(state *State, a *Asker, adopt bool) (*LoadBalancer, error) {
	living := state.Living()
	at := slices.IndexFunc(living, func(lb LoadBalancer) bool { return lb.Owner == nil && lb.Name == nativeName(a.service.UID) })
	if at >= 0 && adopt && living[at].Handle == a.handle {
		return &living[at], nil
	}
	own, err := findOwn(state, a)
	if own != nil || err != nil || at < 0 {
		return own, err
	}
	return &living[at], sdk.MayTake(sdk.Unmarked, adopt, "load balancer "+living[at].Handle)
}

// find returns the load balancer that Ensure has to use, adopt or refuse (LB-9). It searches by the handle, then by the mark, then among the unmarked
// ones by the native name, and then by an address in the Service's status (LB-24). Another owner's with the native name comes last.
func find(state *State, a *Asker) *LoadBalancer {
	living := state.Living()
	named := func(lb *LoadBalancer) bool { return lb.Name == nativeName(a.service.UID) }
	at := func(lb *LoadBalancer) bool {
		return slices.ContainsFunc(a.service.Status.Ingress, func(point sdk.Ingress) bool {
			return slices.Contains(lb.Addresses, point.IP.String()) || lb.Hostname != nil && *lb.Hostname == point.Hostname
		})
	}
	for _, is := range []func(*LoadBalancer) bool{
		func(lb *LoadBalancer) bool { return a.handle != "" && lb.Handle == a.handle },
		func(lb *LoadBalancer) bool { return a.ownership(lb) == sdk.Ours },
		func(lb *LoadBalancer) bool { return lb.Owner == nil && named(lb) },
		func(lb *LoadBalancer) bool { return lb.Owner == nil && at(lb) },
		named,
	} {
		for i := range living {
			if is(&living[i]) {
				return &living[i]
			}
		}
	}
	return nil
}

// wanted returns the existing load balancer, if any, and the desired one. They are equal if no write is needed (LB-8).
func wanted(state *State, a *Asker, targets []string, adopt bool, settings *Settings) (found *LoadBalancer, lb LoadBalancer, err error) {
	if err := check(a.service, settings); err != nil {
		return nil, lb, err
	}
	lb = LoadBalancer{Name: nativeName(a.service.UID), Targets: []string{}}
	if found = find(state, a); found != nil {
		if err := sdk.MayTake(a.ownership(found), adopt, "load balancer "+found.Handle); err != nil {
			return nil, lb, err
		}
		lb = *found
	}
	lb.Config, lb.Remnant = configOf(a.service), false
	if targets != nil { // An absent set leaves the targets alone (LB-10).
		lb.Targets = targets
	}
	if lb.Addresses, err = addressesFor(state, a.service, &lb, settings); err != nil {
		return nil, lb, err
	}
	lb.Owner = a.mark() // A mark with a previous owner ID is a difference (LB-25).
	return found, lb, nil
}

func put(lb LoadBalancer) func(map[string]LoadBalancer, map[string]Route) {
	return func(all map[string]LoadBalancer, _ map[string]Route) { all[lb.Handle] = lb }
}

func statusOf(lb *LoadBalancer) (status sdk.LoadBalancerStatus) {
	for _, text := range lb.Addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			status.Ingress = append(status.Ingress, sdk.Ingress{IP: address, IPMode: sdk.IPModeVIP})
		}
	}
	return status
}
