package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Which load balancer is a Service's, and what there should be: plain functions of the cloud's state, the Service and who asks.

const (
	ours     = contract.Ownership_OWNERSHIP_OURS
	foreign  = contract.Ownership_OWNERSHIP_FOREIGN
	unmarked = contract.Ownership_OWNERSHIP_UNMARKED
)

// Asker says who asks, and for which Service.
type Asker struct {
	*Owner
	service *contract.ServiceView
	handle  string
}

func askerOf(owner *Owner, service *contract.ServiceView, handle string) (*Asker, error) {
	if service.GetUid() == "" {
		return nil, invalid("service %s has no uid; it is what the load balancer is known by", nameOf(service))
	}
	return &Asker{owner, service, handle}, nil
}

func (a *Asker) ownership(lb *LoadBalancer) contract.Ownership {
	switch {
	case lb.Owner == nil:
		return unmarked
	case lb.Owner.UID == a.service.Uid && a.Owns(lb.Owner.OwnerID):
		return ours
	default:
		return foreign
	}
}

func (a *Asker) mark() *Mark {
	return &Mark{OwnerID: a.OwnerID, Namespace: a.service.Namespace, Name: a.service.Name, UID: a.service.Uid}
}

func (a *Asker) notOurs(lb *LoadBalancer) error {
	whose := "carries no mark: grant its adoption, or remove it"
	if mark := lb.Owner; mark != nil {
		whose = fmt.Sprintf("is marked for Service %s/%s (uid %s) of owner %s", mark.Namespace, mark.Name, mark.UID, mark.OwnerID)
	}
	return failf(contract.FailureCode_FAILURE_CODE_CONFLICT, "load balancer %s (%s) is not that of Service %s: it %s", lb.Handle, lb.Name, nameOf(a.service), whose)
}

func nativeName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

// The Service's own: by the handle, which a user can edit (LB-4), else by the mark (LB-5).
func findOwn(state *State, a *Asker) (*LoadBalancer, error) {
	living := state.Living()
	for i := range living {
		if lb := &living[i]; a.handle != "" && lb.Handle == a.handle {
			if a.ownership(lb) != ours {
				return nil, a.notOurs(lb)
			}
			return lb, nil
		}
	}
	for i := range living {
		if a.ownership(&living[i]) == ours {
			return &living[i], nil
		}
	}
	return nil, nil
}

// The Service's own, or the one that is in its way or may be taken over: by handle, mark, native name, or an address of its status (LB-9).
func find(state *State, a *Asker) *LoadBalancer {
	living := state.Living()
	alike := func(lb *LoadBalancer) bool {
		if lb.Name == nativeName(a.service.Uid) {
			return true
		}
		for _, point := range a.service.GetStatus().GetIngress() {
			if lb.Owner == nil && (slices.Contains(lb.Addresses, point.GetIp()) || lb.Hostname != nil && *lb.Hostname == point.GetHostname()) {
				return true
			}
		}
		return false
	}
	for _, is := range []func(*LoadBalancer) bool{
		func(lb *LoadBalancer) bool { return a.handle != "" && lb.Handle == a.handle },
		func(lb *LoadBalancer) bool { return a.ownership(lb) == ours },
		alike,
	} {
		for i := range living {
			if is(&living[i]) {
				return &living[i]
			}
		}
	}
	return nil
}

// What there is, if anything, and what there should be; equal where nothing is to be written (LB-8).
func wanted(state *State, a *Asker, targets []string, adopt bool, settings *Settings) (found *LoadBalancer, lb LoadBalancer, err error) {
	if err := check(a.service, settings); err != nil {
		return nil, lb, err
	}
	lb = LoadBalancer{Name: nativeName(a.service.Uid), Targets: []string{}}
	if found = find(state, a); found != nil {
		if owns := a.ownership(found); owns == foreign || owns == unmarked && !adopt {
			return nil, lb, a.notOurs(found)
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
	// A former owner's mark alone is no reason to write; the next write marks anew.
	if found == nil || found.Owner == nil || !equal(found, &lb) {
		lb.Owner = a.mark()
	}
	return found, lb, nil
}

// As the file has them: empty and absent are the same there.
func equal(one, other *LoadBalancer) bool {
	first, err1 := json.Marshal(one)
	second, err2 := json.Marshal(other)
	return err1 == nil && err2 == nil && string(first) == string(second)
}

func put(lb LoadBalancer) func(map[string]LoadBalancer, map[string]Route) {
	return func(all map[string]LoadBalancer, _ map[string]Route) { all[lb.Handle] = lb }
}

func statusOf(lb *LoadBalancer) *contract.LoadBalancerStatus {
	status, vip := &contract.LoadBalancerStatus{}, contract.IpMode_IP_MODE_VIP
	for _, address := range lb.Addresses {
		status.Ingress = append(status.Ingress, &contract.LoadBalancerIngress{Ip: &address, IpMode: &vip})
	}
	return status
}
