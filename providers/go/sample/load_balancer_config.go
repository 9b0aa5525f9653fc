package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// Checks a Service, and makes the configuration of its load balancer.

// The prefix of the annotations that this cloud honours.
const annotations = "mock.grpc-ccm.io/"

// configOf returns the configuration that the Service asks for, without fields that the user has cleared (LB-7).
func configOf(service *sdk.Service) Config {
	config := Config{
		SourceRanges:          service.SourceRanges,
		SessionAffinity:       service.SessionAffinity,
		ExternalTrafficPolicy: service.ExternalTrafficPolicy,
		Class:                 service.LoadBalancerClass,
		Annotations:           map[string]string{},
	}
	if config.SessionAffinity == "ClientIP" && service.SessionAffinityTimeout > 0 {
		config.SessionAffinity += ":" + strconv.Itoa(int(service.SessionAffinityTimeout.Seconds()))
	}
	if config.ExternalTrafficPolicy == "Local" && service.HealthCheckNodePort != 0 {
		config.ExternalTrafficPolicy += fmt.Sprintf(":%d", service.HealthCheckNodePort)
	}
	for _, port := range service.Ports {
		nodePort := ""
		if port.NodePort != nil {
			nodePort = strconv.Itoa(*port.NodePort)
		}
		config.Ports = append(config.Ports, fmt.Sprintf("%s:%s:%d:%s:%s", port.Name, port.Protocol, port.Port, nodePort, port.AppProtocol))
	}
	for key, value := range service.Annotations {
		if strings.HasPrefix(key, annotations) {
			config.Annotations[key] = value
		}
	}
	return config
}

// check returns INVALID if a field has a value that no load balancer of this cloud can have.
func check(service *sdk.Service, settings *Settings) error {
	if len(service.Ports) == 0 {
		return sdk.Invalid("spec.ports is empty; a load balancer listens on at least one port")
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
	for _, family := range service.IPFamilies {
		words = append(words, word{"ipFamilies", family, []string{"IPv4", "IPv6"}})
	}
	listeners := map[string]bool{}
	for _, port := range service.Ports {
		words = append(words, word{"ports[].protocol", port.Protocol, []string{"TCP", "UDP", "SCTP"}})
		if port.Port < 1 || port.Port > 65_535 {
			return sdk.Invalid("spec.ports[].port %d is not within 1 to 65535", port.Port)
		}
		if port.NodePort != nil && (*port.NodePort < 1 || *port.NodePort > 65_535) {
			return sdk.Invalid("spec.ports[].nodePort %d is not within 1 to 65535", *port.NodePort)
		}
		listener := fmt.Sprintf("%s %d", port.Protocol, port.Port)
		if listeners[listener] {
			return sdk.Invalid("spec.ports has %s twice; a load balancer listens once on it", listener)
		}
		listeners[listener] = true
	}
	for _, cidr := range service.SourceRanges {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return sdk.Invalid("spec.loadBalancerSourceRanges %q is not a CIDR; write one such as 192.0.2.0/24", cidr)
		}
	}
	for _, word := range words {
		if !slices.Contains(word.known, word.value) {
			return sdk.Invalid("spec.%s %q is none of %q", word.field, word.value, word.known)
		}
	}
	return nil
}

// addressesFor returns one address for each IP family of the Service. With PreferDualStack and two families it leaves out one that has no pool. It keeps
// existing addresses, unless spec.loadBalancerIP names another one.
func addressesFor(state *State, service *sdk.Service, lb *LoadBalancer, settings *Settings) ([]string, error) {
	pools := map[bool][]netip.Prefix{}
	for _, text := range settings.Pools {
		pool, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		pools[pool.Addr().Is6()] = append(pools[pool.Addr().Is6()], pool)
	}
	families := []bool{}
	for _, family := range service.IPFamilies {
		is6 := family == "IPv6"
		if prefers := service.IPFamilyPolicy == "PreferDualStack" && len(service.IPFamilies) > 1; !prefers || len(pools[is6]) > 0 {
			families = append(families, is6)
		}
	}
	if len(service.IPFamilies) == 0 {
		families = append(families, false)
	}
	var asked netip.Addr
	if text := service.LoadBalancerIP; text != "" {
		var err error
		if asked, err = netip.ParseAddr(text); err != nil {
			return nil, sdk.Invalid("spec.loadBalancerIP %q is not an IP address; write one such as 192.0.2.1", text)
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
				return nil, sdk.Precondition("spec.loadBalancerIP %s is in none of the cloud's address pools", asked).Because("AddressNotInPool")
			}
			if taken[asked.String()] {
				return nil, sdk.Conflict("spec.loadBalancerIP %s is another load balancer's", asked).Because("AddressTaken")
			}
			address = asked.String()
		case address == "":
			if address = firstFree(pools[is6], taken); address == "" {
				family := map[bool]string{false: "IPv4", true: "IPv6"}[is6]
				return nil, sdk.Precondition("no %s address is left for load balancers; delete one or add a pool", family).Because("AddressPoolExhausted")
			}
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// firstFree returns the lowest free address of the first pool that has one. It does not use the first address of a pool, nor the last of an IPv4
// pool.
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

// namesOf returns the names of the targets: nil if the set is absent, and an empty list for an empty set.
func namesOf(targets *sdk.Targets) []string {
	if targets == nil {
		return nil
	}
	names := []string{}
	for _, node := range targets.Nodes {
		names = append(names, node.Name)
	}
	return names
}

func nameOf(service *sdk.Service) string {
	return service.Namespace + "/" + service.Name
}

func says(service *sdk.Service, annotation string) bool {
	return service.Annotations[annotations+annotation] == "true"
}
