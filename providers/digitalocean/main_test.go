package main

import (
	"io"
	"strings"
	"testing"
)

func environment(pairs ...string) func(string) string {
	values := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return values[name] }
}

func TestTheEnvironmentOfTheVendorsControllerIsTaken(t *testing.T) {
	o, err := parse(nil, environment("DO_ACCESS_TOKEN", "t", "REGION", "nyc1", "DO_CLUSTER_VPC_ID", "c33931f2-a26a-4e61-b85c-4e95a2ec431b", "DEFAULT_LB_TYPE", "REGIONAL", "DO_OVERRIDE_URL", "http://127.0.0.1:1"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if s := o.settings; s.Token != "t" || s.Region != "nyc1" || s.VPC != "c33931f2-a26a-4e61-b85c-4e95a2ec431b" || s.DefaultType != "REGIONAL" || s.APIURL != "http://127.0.0.1:1" {
		t.Errorf("%+v", s)
	}
}

func TestSettingsThatCannotBeHonouredAreRefused(t *testing.T) {
	for name := range vendorOnly {
		if _, err := parse([]string{"--region", "nyc1"}, environment("DIGITALOCEAN_TOKEN", "t", name, "x"), io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, row := range [][]string{
		{"--region", "--region", ""}, {"--region", "--region", "New York"}, {"--vpc", "--region", "nyc1", "--vpc", "default"}, {"--default-load-balancer-type", "--region", "nyc1", "--default-load-balancer-type", "GLOBAL"},
		{"--target-tag", "--region", "nyc1", "--target-tag", "a b"}, {"--api-url", "--region", "nyc1", "--api-url", "api.digitalocean.com"}, {"more", "--region", "nyc1", "more"},
	} {
		if _, err := parse(row[1:], environment("DIGITALOCEAN_TOKEN", "t"), io.Discard); err == nil || !strings.Contains(err.Error(), row[0]) {
			t.Errorf("%v: %v", row, err)
		}
	}
	for token, word := range map[string]string{"": "there is no token", "a b": "white space"} {
		if _, err := parse([]string{"--region", "nyc1"}, environment("DIGITALOCEAN_TOKEN", token), io.Discard); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", token, err)
		}
	}
}
