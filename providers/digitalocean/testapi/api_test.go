package testapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T) (*Cloud, func(method, path string, body any) (int, http.Header, map[string]any)) {
	t.Helper()
	cloud := New(nil)
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	return cloud, func(method, path string, body any) (int, http.Header, map[string]any) {
		t.Helper()
		sent, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(string(sent)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+Token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer := map[string]any{}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, answer
	}
}

func TestPagesHaveLinksAndATotal(t *testing.T) {
	cloud, ask := serve(t)
	for i := range 5 {
		cloud.AddDroplet(NewDroplet{Name: fmt.Sprintf("node-%d", i)})
	}
	for page, want := range map[int]string{1: "2 last next", 2: "2 first last next prev", 3: "1 first prev", 4: "0 first prev"} {
		status, header, answer := ask("GET", fmt.Sprintf("/v2/droplets?per_page=2&page=%d", page), nil)
		links, _ := answer["links"].(map[string]any)["pages"].(map[string]any)
		got := fmt.Sprint(len(answer["droplets"].([]any)))
		for _, name := range []string{"first", "last", "next", "prev"} {
			if links[name] != nil {
				got += " " + name
			}
		}
		if status != 200 || got != want || answer["meta"].(map[string]any)["total"] != 5.0 || header.Get("Ratelimit-Remaining") == "" || header.Get("X-Request-Id") == "" {
			t.Errorf("page %d: %d %q %v %v; wanted %q", page, status, got, answer["meta"], header, want)
		}
	}
	for _, query := range []string{"per_page=201", "per_page=0", "page=x", "type=gpu"} {
		if status, _, answer := ask("GET", "/v2/droplets?"+query, nil); status != 422 || answer["id"] != "unprocessable_entity" {
			t.Errorf("%s: %d %v", query, status, answer)
		}
	}
}

func TestWhatDigitalOceanRefusesIsRefused(t *testing.T) {
	cloud, ask := serve(t)
	droplet, far := cloud.AddDroplet(NewDroplet{Name: "near"}), cloud.AddDroplet(NewDroplet{Name: "far", Region: "fra1"})
	body := func(changes map[string]any) map[string]any {
		body := map[string]any{
			"name": "web", "region": "nyc1", "droplet_ids": []int{droplet},
			"forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080}},
		}
		maps.Copy(body, changes)
		return body
	}
	status, _, made := ask("POST", "/v2/load_balancers", body(nil))
	if status != 202 {
		t.Fatalf("%d %v", status, made)
	}
	path := "/v2/load_balancers/" + made["load_balancer"].(map[string]any)["id"].(string)
	for word, changes := range map[string]map[string]any{
		"name is not unique": {"name": "WEB"}, "name is invalid": {"name": "-x"}, "region is invalid": {"name": "b", "region": "nyc9"},
		"either a tag or a list":  {"name": "b", "droplet_ids": nil},
		"mutually exclusive":      {"name": "b", "tag": "web"},
		"not in the region":       {"name": "b", "droplet_ids": []int{far}},
		"does not exist":          {"name": "b", "droplet_ids": []int{1}},
		"not support DUALSTACK":   {"name": "b", "network": "INTERNAL", "network_stack": "DUALSTACK"},
		"to the same port":        {"name": "b", "type": "REGIONAL_NETWORK"},
		"forwarding_rules is":     {"name": "b", "forwarding_rules": []any{}},
		"not within 30 to 600":    {"name": "b", "http_idle_timeout_seconds": 5},
		"need cookie_name":        {"name": "b", "sticky_sessions": map[string]any{"type": "cookies"}},
		"firewall rule":           {"name": "b", "firewall": map[string]any{"allow": []string{"10.0.0.1"}}},
		"size and size_unit are":  {"name": "b", "size": "lb-small", "size_unit": 1},
		"intervals are not":       {"name": "b", "health_check": map[string]any{"check_interval_seconds": 1}},
		"a certificate or TLS pa": {"name": "b", "forwarding_rules": []any{map[string]any{"entry_protocol": "https", "entry_port": 443, "target_protocol": "http", "target_port": 80}}},
	} {
		if status, _, answer := ask("POST", "/v2/load_balancers", body(changes)); status != 422 || !strings.Contains(fmt.Sprint(answer["message"]), word) || answer["request_id"] == "" {
			t.Errorf("%v: %d %v; wanted %q", changes, status, answer, word)
		}
	}
	for word, changes := range map[string]map[string]any{"type cannot": {"type": "REGIONAL_NETWORK", "forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}}}, "network_stack cannot": {"network_stack": "DUALSTACK"}} {
		if status, _, answer := ask("PUT", path, body(changes)); status != 422 || !strings.Contains(fmt.Sprint(answer["message"]), word) {
			t.Errorf("%v: %d %v", changes, status, answer)
		}
	}
	// A field that is missing in a PUT has its default again.
	ask("PUT", path, body(map[string]any{"size_unit": 3, "http_idle_timeout_seconds": 90}))
	_, _, answer := ask("PUT", path, body(nil))
	if lb := answer["load_balancer"].(map[string]any); lb["size_unit"] != 1.0 || lb["http_idle_timeout_seconds"] != 60.0 {
		t.Errorf("%v", lb)
	}
	if len(cloud.LoadBalancers()) != 1 {
		t.Errorf("%+v", cloud.LoadBalancers())
	}
	if status, _, answer := ask("GET", "/v2/images", nil); status != 404 || answer["id"] != "not_found" {
		t.Errorf("%d %v", status, answer)
	}
}

func TestThingsTakeTime(t *testing.T) {
	cloud, ask := serve(t)
	cloud.Limit(0, time.Hour)
	cloud.Set(Settings{ProvisionMS: 3_600_000, BootMS: 100, ListLagMS: 3_600_000})
	droplet := cloud.AddDroplet(NewDroplet{Name: "node"})
	status, _, made := ask("POST", "/v2/load_balancers", map[string]any{
		"name": "web", "region": "nyc1", "droplet_ids": []int{droplet}, "forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}},
	})
	lb := made["load_balancer"].(map[string]any)
	path := "/v2/load_balancers/" + lb["id"].(string)
	if status != 202 || lb["status"] != "new" || lb["ip"] != "" {
		t.Fatalf("%d %v", status, lb)
	}
	if status, _, answer := ask("PUT", path, map[string]any{}); status != 403 || !strings.Contains(fmt.Sprint(answer["message"]), "previous actions") {
		t.Errorf("%d %v", status, answer)
	}
	if _, _, answer := ask("GET", "/v2/load_balancers", nil); len(answer["load_balancers"].([]any)) != 0 {
		t.Errorf("the list is not late: %v", answer)
	}
	cloud.Set(Settings{DeleteMS: 3_600_000})
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never so: %s", what)
			}
		}
	}
	until("it is active", func() bool {
		_, _, answer := ask("GET", path, nil)
		lb := answer["load_balancer"].(map[string]any)
		return lb["status"] == "active" && lb["ip"] != ""
	})
	until("it is listed", func() bool {
		_, _, answer := ask("GET", "/v2/load_balancers", nil)
		return len(answer["load_balancers"].([]any)) == 1
	})
	if status, _, _ := ask("DELETE", path, nil); status != 204 {
		t.Errorf("%d", status)
	}
	if status, _, _ := ask("GET", path, nil); status != 200 {
		t.Errorf("%d: it is gone at once", status)
	}
	cloud.Set(Settings{})
	until("it is gone", func() bool { status, _, _ := ask("GET", path, nil); return status == 404 })
}
