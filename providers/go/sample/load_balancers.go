package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"example.invalid/providers/go/contract"
)

// LoadBalancerService. Decisions are plain functions of the cloud's state, the Service and who asks; the RPCs carry them out.

// The annotations of a Service that this cloud honours begin with this.
const annotations = "mock.grpc-ccm.io/"

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

// What the Service asks of its load balancer; a field that was cleared is not there any more (LB-7).
func configOf(service *contract.ServiceView) Config {
	config := Config{
		SourceRanges:          service.LoadBalancerSourceRanges,
		SessionAffinity:       service.SessionAffinity,
		ExternalTrafficPolicy: service.ExternalTrafficPolicy,
		Class:                 service.LoadBalancerClass,
		Annotations:           map[string]string{},
	}
	if config.SessionAffinity == "ClientIP" && service.SessionAffinityTimeout != nil {
		config.SessionAffinity += ":" + strconv.FormatInt(service.SessionAffinityTimeout.Seconds, 10)
	}
	if config.ExternalTrafficPolicy == "Local" && service.HealthCheckNodePort != nil {
		config.ExternalTrafficPolicy += fmt.Sprintf(":%d", *service.HealthCheckNodePort)
	}
	for _, port := range service.Ports {
		nodePort := ""
		if port.NodePort != nil {
			nodePort = strconv.Itoa(int(*port.NodePort))
		}
		config.Ports = append(config.Ports, fmt.Sprintf("%s:%s:%d:%s:%s", port.Name, port.Protocol, port.Port, nodePort, port.GetAppProtocol()))
	}
	for key, value := range service.Annotations {
		if strings.HasPrefix(key, annotations) {
			config.Annotations[key] = value
		}
	}
	return config
}

// INVALID where a field has a value that no load balancer can be given: the field, its value and what would be right.
func check(service *contract.ServiceView, settings *Settings) error {
	if len(service.Ports) == 0 {
		return invalid("spec.ports is empty; a load balancer listens on at least one port")
	}
	type word struct {
		field, value string
		known        []string
	}
	words := []word{
		{"sessionAffinity", service.SessionAffinity, []string{"", "None", "ClientIP"}},
		{"externalTrafficPolicy", service.ExternalTrafficPolicy, []string{"", "Cluster", "Local"}},
	}
	if service.LoadBalancerClass != nil {
		words = append(words, word{"loadBalancerClass", *service.LoadBalancerClass, settings.Classes})
	}
	for _, family := range service.IpFamilies {
		words = append(words, word{"ipFamilies", family, []string{"IPv4", "IPv6"}})
	}
	listeners := map[string]bool{}
	for _, port := range service.Ports {
		words = append(words, word{"ports[].protocol", port.Protocol, []string{"TCP", "UDP", "SCTP"}})
		if port.Port < 1 || port.Port > 65_535 {
			return invalid("spec.ports[].port %d is not within 1 to 65535", port.Port)
		}
		if port.NodePort != nil && (*port.NodePort < 1 || *port.NodePort > 65_535) {
			return invalid("spec.ports[].nodePort %d is not within 1 to 65535", *port.NodePort)
		}
		listener := fmt.Sprintf("%s %d", port.Protocol, port.Port)
		if listeners[listener] {
			return invalid("spec.ports has %s twice; a load balancer listens once on it", listener)
		}
		listeners[listener] = true
	}
	for _, cidr := range service.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return invalid("spec.loadBalancerSourceRanges %q is not a CIDR; write one such as 192.0.2.0/24", cidr)
		}
	}
	for _, word := range words {
		if !slices.Contains(word.known, word.value) {
			return invalid("spec.%s %q is none of %q", word.field, word.value, word.known)
		}
	}
	return nil
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

// One address of each family that the Service has: those that it has may stay.
func addressesFor(state *State, service *contract.ServiceView, lb *LoadBalancer, settings *Settings) ([]string, error) {
	pools := map[bool][]netip.Prefix{}
	for _, text := range settings.Pools {
		pool, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		pools[pool.Addr().Is6()] = append(pools[pool.Addr().Is6()], pool)
	}
	families := []bool{}
	for _, family := range service.IpFamilies {
		is6 := family == "IPv6"
		if prefers := service.GetIpFamilyPolicy() == "PreferDualStack" && len(service.IpFamilies) > 1; !prefers || len(pools[is6]) > 0 {
			families = append(families, is6)
		}
	}
	if len(service.IpFamilies) == 0 {
		families = append(families, false)
	}
	var asked netip.Addr
	if text := service.GetLoadBalancerIp(); text != "" {
		var err error
		if asked, err = netip.ParseAddr(text); err != nil {
			return nil, invalid("spec.loadBalancerIP %q is not an IP address; write one such as 192.0.2.1", text)
		}
	}
	taken, kept := map[string]bool{}, map[bool]string{}
	for _, other := range state.Living() {
		for _, address := range other.Addresses {
			taken[address] = other.Handle != lb.Handle
		}
	}
	for _, address := range lb.Addresses {
		kept[strings.Contains(address, ":")] = address
	}
	addresses := []string{}
	for _, is6 := range families {
		address := kept[is6]
		switch {
		case asked.IsValid() && asked.Is6() == is6:
			inPool := slices.ContainsFunc(pools[is6], func(pool netip.Prefix) bool { return pool.Contains(asked) })
			if asked.String() != address && !inPool {
				return nil, failf(contract.FailureCode_FAILURE_CODE_PRECONDITION, "spec.loadBalancerIP %s is in none of the cloud's address pools", asked).because("AddressNotInPool")
			}
			if taken[asked.String()] {
				return nil, failf(contract.FailureCode_FAILURE_CODE_CONFLICT, "spec.loadBalancerIP %s is another load balancer's", asked).because("AddressTaken")
			}
			address = asked.String()
		case address == "":
			if address = firstFree(pools[is6], taken); address == "" {
				family := map[bool]string{false: "IPv4", true: "IPv6"}[is6]
				return nil, failf(contract.FailureCode_FAILURE_CODE_PRECONDITION, "no %s address is left for load balancers; delete one or add a pool", family).because("AddressPoolExhausted")
			}
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// The lowest address that is not taken; the first of a pool is left out, and in IPv4 the last.
func firstFree(pools []netip.Prefix, taken map[string]bool) string {
	for _, pool := range pools {
		for address := pool.Masked().Addr().Next(); pool.Contains(address); address = address.Next() {
			isLast := address.Is4() && !pool.Contains(address.Next())
			if !isLast && !taken[address.String()] {
				return address.String()
			}
		}
	}
	return ""
}

// nil where the set is absent, which is not empty.
func targetsOf(targets *contract.TargetSet) ([]string, error) {
	if targets == nil {
		return nil, nil
	}
	inline, ok := targets.Set.(*contract.TargetSet_Inline)
	if !ok {
		return nil, invalid("targets are not given inline, which is all that this minor of the contract has")
	}
	names := []string{}
	for _, node := range inline.Inline.GetNodes() {
		if !slices.Contains(names, node.Name) {
			names = append(names, node.Name)
		}
	}
	return names, nil
}

func statusOf(lb *LoadBalancer) *contract.LoadBalancerStatus {
	status, vip := &contract.LoadBalancerStatus{}, contract.IpMode_IP_MODE_VIP
	for _, address := range lb.Addresses {
		status.Ingress = append(status.Ingress, &contract.LoadBalancerIngress{Ip: &address, IpMode: &vip})
	}
	return status
}

func nameOf(service *contract.ServiceView) string {
	return service.GetNamespace() + "/" + service.GetName()
}

func says(service *contract.ServiceView, annotation string) bool {
	return service.Annotations[annotations+annotation] == "true"
}

// GetLoadBalancer writes nothing (LB-6).
func (p *Provider) GetLoadBalancer(ctx context.Context, request *contract.GetLoadBalancerRequest) (*contract.GetLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.GetLoadBalancerResponse {
		return &contract.GetLoadBalancerResponse{Outcome: &contract.GetLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "GetLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.GetLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		targets, err := targetsOf(request.Targets)
		if err != nil {
			return nil, err
		}
		state, err := p.cloud.Read(ctx, 0)
		if err != nil {
			return nil, err
		}
		found := &contract.LoadBalancer{Presence: contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT}
		response := &contract.GetLoadBalancerResponse{Outcome: &contract.GetLoadBalancerResponse_Found{Found: found}}
		lb := find(state, asker)
		if lb == nil {
			return response, nil
		}
		found.Ownership, found.LoadBalancerName = asker.ownership(lb), lb.Name
		if found.Ownership == ours {
			response.Handle = &lb.Handle
		}
		if lb.Remnant || lb.GoneAtMs != nil {
			found.Presence = contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_REMNANTS
			return response, nil
		}
		found.Presence = contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT
		found.Status = statusOf(lb)
		// Whether Ensure would write nothing and answer ready (LB-14): the same decision, asked beforehand.
		there, asked, err := wanted(state, asker, targets, false, &p.settings)
		inSync := err == nil && equal(there, &asked) && lb.ReadyAtMs <= state.NowMs() && !says(request.Service, "handled-elsewhere")
		found.InSync = &inSync
		return response, nil
	})
}

// Runs a mutating call: one at a time for each Service, and late when three quarters of its time are over (CORE-9): then nothing is written any more, and the next call goes on
// from what is there.
func (p *Provider) mutate(ctx context.Context, asker *Asker, work func(ctx context.Context) error) (late bool, err error) {
	release, err := p.hold(asker.Owner, "the load balancer of Service "+asker.service.Uid)
	if err != nil {
		return false, err
	}
	defer release()
	inTime := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		inTime, stop = context.WithTimeout(ctx, time.Until(deadline)*3/4)
		defer stop()
	}
	err = work(inTime)
	late = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if late {
		err = nil
	}
	return late, err
}

const notYet = "the cloud has not answered yet"

// EnsureLoadBalancer makes the load balancer, or makes it as the Service asks.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, request *contract.EnsureLoadBalancerRequest) (*contract.EnsureLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.EnsureLoadBalancerResponse {
		return &contract.EnsureLoadBalancerResponse{Outcome: &contract.EnsureLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "EnsureLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.EnsureLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		if says(request.Service, "handled-elsewhere") {
			return &contract.EnsureLoadBalancerResponse{Outcome: &contract.EnsureLoadBalancerResponse_HandledElsewhere{}}, nil
		}
		targets, err := targetsOf(request.Targets)
		if err != nil {
			return nil, err
		}
		response := &contract.EnsureLoadBalancerResponse{}
		waits := func(message string, leftMs int64) {
			response.Outcome = &contract.EnsureLoadBalancerResponse_Pending{Pending: pending(message, leftMs)}
		}
		late, err := p.mutate(ctx, asker, func(ctx context.Context) error {
			return p.cloud.Write(ctx, func(state *State) (write *Write, err error) {
				found, lb, err := wanted(state, asker, targets, request.AdoptUnmarked, &p.settings)
				if err != nil {
					return nil, err
				}
				response.Handle = &lb.Handle
				if lb.GoneAtMs != nil {
					waits("the former load balancer is being deleted", *lb.GoneAtMs-state.NowMs())
					return nil, nil
				}
				verb, number := "change", state.LastNumber
				if found == nil {
					number++
					verb, lb.Handle, lb.ReadyAtMs = "create", fmt.Sprintf("lb-%d", number), state.NowMs()+p.settings.Provisioning.Milliseconds()
				}
				if found == nil || !equal(found, &lb) {
					line := fmt.Sprintf("%s load balancer %s of %s", verb, lb.Handle, nameOf(request.Service))
					write = &Write{Line: line, LastNumber: number, Change: put(lb)}
				}
				if left := lb.ReadyAtMs - state.NowMs(); left > 0 {
					waits("the load balancer is being made", left)
				} else {
					ready := &contract.LoadBalancerReady{Status: statusOf(&lb)}
					response.Outcome = &contract.EnsureLoadBalancerResponse_Ready{Ready: ready}
				}
				return write, nil
			})
		})
		if late {
			response = &contract.EnsureLoadBalancerResponse{}
			waits(notYet, 5_000)
		}
		return response, err
	})
}

func put(lb LoadBalancer) func(map[string]LoadBalancer, map[string]Route) {
	return func(all map[string]LoadBalancer, _ map[string]Route) { all[lb.Handle] = lb }
}

// UpdateLoadBalancer sets the targets and nothing else.
func (p *Provider) UpdateLoadBalancer(ctx context.Context, request *contract.UpdateLoadBalancerRequest) (*contract.UpdateLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.UpdateLoadBalancerResponse {
		return &contract.UpdateLoadBalancerResponse{Outcome: &contract.UpdateLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "UpdateLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.UpdateLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		if says(request.Service, "handled-elsewhere") {
			return &contract.UpdateLoadBalancerResponse{Outcome: &contract.UpdateLoadBalancerResponse_HandledElsewhere{}}, nil
		}
		targets, err := targetsOf(request.Targets)
		if err == nil && targets == nil {
			err = invalid("the request has no targets; an update is about nothing else")
		}
		if err != nil {
			return nil, err
		}
		response := &contract.UpdateLoadBalancerResponse{Outcome: &contract.UpdateLoadBalancerResponse_Done{Done: &contract.Done{}}}
		late, err := p.mutate(ctx, asker, func(ctx context.Context) error {
			return p.cloud.Write(ctx, func(state *State) (*Write, error) {
				lb, err := findOwn(state, asker)
				if err != nil {
					return nil, err
				}
				if lb == nil || lb.Remnant || lb.GoneAtMs != nil {
					return nil, failf(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "Service %s has no load balancer", nameOf(request.Service))
				}
				response.Handle = &lb.Handle
				if slices.Equal(lb.Targets, targets) {
					return nil, nil
				}
				changed := *lb
				changed.Targets, changed.Owner = targets, asker.mark()
				line := fmt.Sprintf("set the %d targets of load balancer %s", len(targets), lb.Handle)
				return &Write{Line: line, Change: put(changed)}, nil
			})
		})
		if late {
			response.Outcome = &contract.UpdateLoadBalancerResponse_Pending{Pending: pending(notYet, 5_000)}
		}
		return response, err
	})
}

// DeleteLoadBalancer removes what was made for this Service, and has looked for it (LB-12).
func (p *Provider) DeleteLoadBalancer(ctx context.Context, request *contract.DeleteLoadBalancerRequest) (*contract.DeleteLoadBalancerResponse, error) {
	failed := func(failure *contract.Failure) *contract.DeleteLoadBalancerResponse {
		return &contract.DeleteLoadBalancerResponse{Outcome: &contract.DeleteLoadBalancerResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "DeleteLoadBalancer", request.Cluster, failed, func(owner *Owner) (*contract.DeleteLoadBalancerResponse, error) {
		asker, err := askerOf(owner, request.Service, request.GetHandle())
		if err != nil {
			return nil, err
		}
		if says(request.Service, "handled-elsewhere") {
			return &contract.DeleteLoadBalancerResponse{Outcome: &contract.DeleteLoadBalancerResponse_HandledElsewhere{}}, nil
		}
		response := &contract.DeleteLoadBalancerResponse{Outcome: &contract.DeleteLoadBalancerResponse_Done{Done: &contract.Done{}}}
		waits := func(message string, leftMs int64) {
			response.Outcome = &contract.DeleteLoadBalancerResponse_Pending{Pending: pending(message, leftMs)}
		}
		late, err := p.mutate(ctx, asker, func(ctx context.Context) error {
			return p.cloud.Write(ctx, func(state *State) (write *Write, err error) {
				lb, err := findOwn(state, asker)
				if err != nil || lb == nil {
					return nil, err
				}
				if says(request.Service, "retain") {
					reason := fmt.Sprintf("load balancer %s is kept: the annotation %sretain asks for it", lb.Handle, annotations)
					response.Handle = &lb.Handle
					response.Outcome = &contract.DeleteLoadBalancerResponse_Retained{Retained: &contract.Retained{Reason: reason}}
					return nil, nil
				}
				goneAt := state.NowMs() + p.settings.Provisioning.Milliseconds()
				if lb.GoneAtMs != nil {
					goneAt = *lb.GoneAtMs
				} else {
					write = &Write{Line: "delete load balancer " + lb.Handle, Change: func(all map[string]LoadBalancer, _ map[string]Route) {
						if left := *lb; p.settings.Provisioning > 0 {
							left.GoneAtMs = &goneAt
							all[lb.Handle] = left
						} else {
							delete(all, lb.Handle)
						}
					}}
				}
				if left := goneAt - state.NowMs(); left > 0 {
					response.Handle = &lb.Handle
					waits("the load balancer is being deleted", left)
				}
				return write, nil
			})
		})
		if late {
			waits(notYet, 5_000)
		}
		return response, err
	})
}

// ListLoadBalancers gives all that are marked for this cluster.
func (p *Provider) ListLoadBalancers(request *contract.ListLoadBalancersRequest, stream grpc.ServerStreamingServer[contract.ListLoadBalancersResponse]) error {
	type response = contract.ListLoadBalancersResponse
	failed := func(failure *contract.Failure) []*response {
		return []*response{{Part: &contract.ListLoadBalancersResponse_Failed{Failed: failure}}}
	}
	parts, err := answer(stream.Context(), p, "ListLoadBalancers", request.Cluster, failed, func(owner *Owner) (parts []*response, err error) {
		state, err := p.cloud.Read(stream.Context(), 0)
		if err != nil {
			return nil, err
		}
		for _, lb := range state.Living() {
			if mark := lb.Owner; mark != nil && owner.Owns(mark.OwnerID) {
				owners := []*contract.ServiceRef{{Namespace: mark.Namespace, Name: mark.Name, Uid: mark.UID}}
				listed := &contract.ListedLoadBalancer{LoadBalancerName: lb.Name, Handle: &lb.Handle, Owners: owners}
				parts = append(parts, &response{Part: &contract.ListLoadBalancersResponse_LoadBalancer{LoadBalancer: listed}})
			}
		}
		end := &contract.ListEnd{Total: uint64(len(parts))}
		return append(parts, &response{Part: &contract.ListLoadBalancersResponse_End{End: end}}), nil
	})
	for _, part := range parts {
		if err == nil {
			err = stream.Send(part)
		}
	}
	return err
}
