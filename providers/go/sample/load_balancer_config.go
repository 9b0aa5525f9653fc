package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// What a Service asks of its load balancer, checked and as this cloud says it.

// The annotations of a Service that this cloud honours begin with this.
const annotations = "mock.grpc-ccm.io/"

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

func nameOf(service *contract.ServiceView) string {
	return service.GetNamespace() + "/" + service.GetName()
}

func says(service *contract.ServiceView, annotation string) bool {
	return service.Annotations[annotations+annotation] == "true"
}
