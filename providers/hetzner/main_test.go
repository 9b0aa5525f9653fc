package main

import (
	"io"
	"strings"
	"testing"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

func TestWrongFlagsAreNamed(t *testing.T) {
	token := map[string]string{"HCLOUD_TOKEN": "t"}
	for name, row := range map[string]struct {
		arguments   []string
		environment map[string]string
		says        string
	}{
		"no token":     {nil, nil, "--token-file"},
		"family":       {[]string{"--address-family", "ipv5"}, token, "ipv5"},
		"url":          {[]string{"--api-url", "nowhere"}, token, "--api-url"},
		"both places":  {[]string{"--load-balancer-location", "fsn1", "--load-balancer-network-zone", "eu-central"}, token, "one of the two"},
		"private":      {[]string{"--use-private-ip"}, token, "--network"},
		"selector":     {[]string{"--target-selector", "a in"}, token, "--target-selector"},
		"robot":        {[]string{"--target-selector", "a=b", "--robot-targets"}, token, "--target-selector and --robot-targets"},
		"environment":  {nil, map[string]string{"HCLOUD_TOKEN": "t", "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": "perhaps"}, "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP"},
		"an argument":  {[]string{"serve"}, token, "serve"},
		"interval":     {[]string{"--health-check-interval", "1s"}, token, "--health-check-interval"},
		"half seconds": {[]string{"--health-check-interval", "3500ms"}, token, "--health-check-interval 3.5s is no number of whole seconds"},
		"half timeout": {nil, map[string]string{"HCLOUD_TOKEN": "t", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT": "1500ms"}, "--health-check-timeout 1.5s is no number of whole seconds"},
		"timeout":      {[]string{"--health-check-timeout", "2m"}, token, "--health-check-timeout"},
		"retries":      {[]string{"--health-check-retries", "9"}, token, "--health-check-retries"},
		"two in token": {nil, map[string]string{"HCLOUD_TOKEN": "a b"}, "white space"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(row.arguments, func(key string) string { return row.environment[key] }, io.Discard)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestTheEnvironmentOfHetznersControllerIsRead(t *testing.T) {
	environment := map[string]string{"HCLOUD_TOKEN": "t", "HCLOUD_NETWORK": "cluster", "HCLOUD_NETWORK_ROUTES_ENABLED": "false", "HCLOUD_LOAD_BALANCERS_ENABLED": "false", "HCLOUD_LOAD_BALANCERS_LOCATION": "nbg1", "HCLOUD_INSTANCES_ADDRESS_FAMILY": "dualstack", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES": "2"}
	o, err := parse(nil, func(key string) string { return environment[key] }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if s := o.settings; s.Network != "cluster" || s.Routes || s.LoadBalancers || s.Location != "nbg1" || !s.IPv4 || !s.IPv6 || s.HealthRetries != 2 {
		t.Errorf("%+v", s)
	}
}

// The chart sets the variable CLOUD_PROVIDER_ENDPOINT.
func TestTheEndpointIsThatOfTheFlagElseOfTheEnvironment(t *testing.T) {
	environment := map[string]string{"HCLOUD_TOKEN": "t"}
	served := func(arguments ...string) string {
		o, err := parse(arguments, func(key string) string { return environment[key] }, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return o.endpoint
	}
	if endpoint := served(); endpoint != sdk.DefaultEndpoint {
		t.Error(endpoint)
	}
	environment["CLOUD_PROVIDER_ENDPOINT"] = "unix:///tmp/x/p.sock"
	if endpoint := served(); endpoint != "unix:///tmp/x/p.sock" {
		t.Error(endpoint)
	}
	if endpoint := served("--endpoint", "unix:///tmp/y/p.sock"); endpoint != "unix:///tmp/y/p.sock" {
		t.Error(endpoint)
	}
}
