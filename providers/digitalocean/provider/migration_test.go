package provider

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

// vendor does what DigitalOcean's own controller does for a Service: it finds the load balancer by the annotation with its ID, else by the name, and writes all of it.
func vendor(b *balancer) (id string) {
	b.Helper()
	client, err := godo.New(&http.Client{Transport: &tokens{base: http.DefaultTransport, secret: sdk.Token{Value: testapi.Token}}}, godo.SetBaseURL(b.settings.APIURL+"/"))
	if err != nil {
		b.Fatal(err)
	}
	name := b.service.Annotations[annotation+"name"]
	if name == "" {
		name = "a" + strings.ReplaceAll(b.service.Uid, "-", "")
		name = name[:32]
	}
	id = b.service.Annotations[plan.AnnotationID]
	if id == "" {
		all, _, err := client.LoadBalancers.List(b.ctx, &godo.ListOptions{PerPage: 200})
		if err != nil {
			b.Fatal(err)
		}
		for _, lb := range all {
			if lb.Name == name {
				id = lb.ID
			}
		}
	}
	request := &godo.LoadBalancerRequest{
		Name: name, Region: "nyc1", Type: "REGIONAL_NETWORK", Network: "EXTERNAL", NetworkStack: "IPV4", DropletIDs: b.droplets, StickySessions: &godo.StickySessions{Type: "none"},
		ForwardingRules: []godo.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 80}}, Algorithm: "round_robin",
		HealthCheck: &godo.HealthCheck{Protocol: "http", Port: 10256, Path: "/healthz", CheckIntervalSeconds: 3, ResponseTimeoutSeconds: 5, UnhealthyThreshold: 3, HealthyThreshold: 5, ProxyProtocol: godo.PtrTo(false)},
	}
	var lb *godo.LoadBalancer
	if id == "" {
		lb, _, err = client.LoadBalancers.Create(b.ctx, request)
	} else {
		lb, _, err = client.LoadBalancers.Update(b.ctx, id, request)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.service.Annotations[plan.AnnotationID] = lb.ID
	b.service.Annotations[annotation+"type"] = lb.Type
	ip := lb.IP
	b.service.Status = &contract.LoadBalancerStatus{Ingress: []*contract.LoadBalancerIngress{{Ip: &ip}}}
	return lb.ID
}

func TestMigrationFromTheVendorsControllerAndBackKeepsTheLoadBalancer(t *testing.T) {
	for name, custom := range map[string]string{"its own name": "", "a name of the user": "shop"} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t, func(s *Settings) { s.WriteID = true })
			b := h.service(uid)
			if custom != "" {
				b.service.Annotations[annotation+"name"] = custom
			}
			id := vendor(b)
			made := h.only()
			h.cloud.Forget()

			if found := b.get().GetFound(); found.GetOwnership() != contract.Ownership_OWNERSHIP_UNMARKED || found.GetInSync() {
				t.Errorf("%v", found)
			}
			h.must(b.ensure().GetFailed(), sdk.CodeConflict, "Conflict", "adoption")
			b.adopt = true
			b.ensured()
			b.adopt = false
			b.ensured()
			adopted := h.only()
			if adopted.Name == made.Name || b.handle == nil || *b.handle != id {
				t.Errorf("%+v", adopted)
			}
			adopted.Name = made.Name
			if now, then := text(t, adopted), text(t, made); now != then {
				t.Errorf("adoption changed more than the name: %s; before: %s", now, then)
			}
			if back := vendor(b); back != id {
				t.Errorf("the vendor's controller works with %s", back)
			}
			b.adopt = true
			b.ensured()
			if h.only().ID != id {
				t.Errorf("%+v", h.only())
			}
			for route := range h.cloud.Counts() {
				if strings.HasPrefix(route, "POST") || strings.HasPrefix(route, "DELETE") {
					t.Errorf("%s: something was made or deleted", route)
				}
			}
		})
	}
}

// text returns a load balancer in the API's JSON.
func text(t *testing.T, lb testapi.LoadBalancer) string {
	t.Helper()
	told, err := json.Marshal(lb)
	if err != nil {
		t.Fatal(err)
	}
	return string(told)
}

// The vendor's controller finds this provider's load balancer by the annotation that the provider has written.
func TestTheVendorsControllerTakesOverWhatWasMadeHere(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	if b.service.Annotations[plan.AnnotationID] != "" {
		t.Error("the annotation was written without --write-load-balancer-id")
	}
	h.settings.WriteID = true
	h.start()
	h.initialize(us)
	if _, routes := h.calls(func() { b.get() }); b.service.Annotations[plan.AnnotationID] != h.only().ID || len(routes) != 1 {
		t.Errorf("%v %v", b.service.Annotations, routes)
	}
	id := h.only().ID
	if back := vendor(b); back != id || h.only().ID != id {
		t.Errorf("%s %+v", back, h.only())
	}
}

func TestAnIDInAnAnnotationIsNoReasonToTouchALoadBalancer(t *testing.T) {
	h := initialized(t)
	other, err := h.cloud.AddLoadBalancer("not-of-this-service")
	if err != nil {
		t.Fatal(err)
	}
	before := h.only()
	b := h.service(uid, plan.AnnotationID, other)
	for _, b.adopt = range []bool{false, true} {
		h.must(b.ensure().GetFailed(), sdk.CodeInvalid, "LoadBalancerIDNotOurs", plan.AnnotationID, other, plan.VendorName(uid))
		b.removed()
		if found := b.get().GetFound(); found.Presence != contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT {
			t.Errorf("%v", found)
		}
	}
	// The same for a Service that has a load balancer.
	delete(b.service.Annotations, plan.AnnotationID)
	b.adopt = false
	b.ensured()
	b.service.Annotations[plan.AnnotationID] = other
	h.must(b.ensure().GetFailed(), sdk.CodeInvalid, "LoadBalancerIDNotOurs")
	if b.get().GetFound().GetInSync() {
		t.Error("it is in sync with what Ensure refuses")
	}
	b.removed()
	if after := h.only(); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v; before: %+v", after, before)
	}
	// An annotation that names nothing is left over from a load balancer that was deleted by hand.
	b.handle = nil
	b.service.Annotations[plan.AnnotationID] = "00000000-0000-4000-8000-000000000000"
	answer := b.ensure()
	if answer.GetReady() == nil || len(answer.Events) != 1 || answer.Events[0].Reason != "LoadBalancerIDUnknown" {
		t.Errorf("%v", answer)
	}
}

// A user can edit the handle that the controller stores.
func TestAHandleIsNoPath(t *testing.T) { // LB-4
	h := initialized(t)
	for _, handle := range []string{"../droplets/1", "x?page=1", "", "00000000-0000-4000-8000-00000000000g"} {
		b := h.service(uid)
		b.handle = &handle
		_, routes := h.calls(func() { b.get() })
		if len(routes) != 1 || routes["GET /v2/load_balancers"] != 1 {
			t.Errorf("%q: %v", handle, routes)
		}
	}
}

func TestADisownedLoadBalancerIsLeftAlone(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	writes := h.cloud.Writes()
	b.service.Annotations[plan.AnnotationDisown] = "true"
	b.service.Ports[0].Port = 8080
	if b.ensure().GetHandledElsewhere() == nil || b.update().GetHandledElsewhere() == nil || b.remove().GetRetained() == nil || b.get().GetFound().GetInSync() {
		t.Error("it was not left alone")
	}
	// The name keeps its mark, so the load balancer is listed. The event says what to do.
	if why := b.remove().GetRetained().Reason; !strings.Contains(why, h.only().ID) || !strings.Contains(why, "--orphaned-load-balancers") || h.listed() != 1 {
		t.Errorf("%q", why)
	}
	b.service.Annotations[plan.AnnotationDisown] = "yes, please"
	h.must(b.ensure().GetFailed(), sdk.CodeInvalid, "AnnotationInvalid", plan.AnnotationDisown)
	if b.update().GetDone() == nil {
		t.Error("Update refused the annotation, and only Ensure may")
	}
	if b.remove().GetRetained() == nil {
		t.Error("an annotation that cannot be read let the load balancer go")
	}
	if h.cloud.Writes() != writes {
		t.Error("something was written")
	}
}

func TestADisownedLoadBalancerThatItsNewOwnerRenamedDoesNotHoldTheService(t *testing.T) {
	for _, name := range []string{"theirs", plan.MarkOf(&sdk.Service{Namespace: "a", Name: "b", UID: "c"}, "d").String()} {
		t.Run(name, func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			b.ensured()
			h.cloud.ChangeLoadBalancer(h.only().ID, func(lb *testapi.LoadBalancer) { lb.Name = name })
			writes := h.cloud.Writes()
			h.must(b.remove().GetFailed(), sdk.CodeConflict, "Conflict", h.only().ID)
			b.service.Annotations[plan.AnnotationDisown] = "true"
			if why := b.remove().GetRetained().GetReason(); !strings.Contains(why, plan.AnnotationDisown) || strings.Contains(why, "rename") {
				t.Errorf("%q", why)
			}
			if h.only().Name != name || h.cloud.Writes() != writes {
				t.Error("something was written")
			}
		})
	}
}

// DigitalOcean renews certificates of Let's Encrypt under new IDs, and puts those onto load balancers by itself.
func TestARenewedCertificateIsKeptAndTold(t *testing.T) {
	h := initialized(t)
	former, renewed, other := h.cloud.AddCertificate("web", "lets_encrypt"), h.cloud.AddCertificate("web", "lets_encrypt"), h.cloud.AddCertificate("web", "custom")
	b := h.service(uid, "type", "REGIONAL", "protocol", "https", "certificate-id", former)
	b.ensured()
	put := func(id string) {
		h.cloud.ChangeLoadBalancer(h.only().ID, func(lb *testapi.LoadBalancer) { lb.ForwardingRules[0].CertificateID = id })
	}
	put(renewed)
	if !b.get().GetFound().GetInSync() || b.service.Annotations[annotation+"certificate-id"] != renewed {
		t.Errorf("%v", b.service.Annotations)
	}
	put(other) // Somebody did that by hand.
	if b.get().GetFound().GetInSync() {
		t.Error("another certificate is in sync")
	}
	b.ensured()
	if h.only().ForwardingRules[0].CertificateID != renewed {
		t.Errorf("%+v", h.only().ForwardingRules)
	}
	b.service.Annotations = map[string]string{annotation + "type": "REGIONAL", annotation + "protocol": "https", annotation + "certificate-name": "none"}
	h.must(b.ensure().GetFailed(), sdk.CodeInvalid, "CertificateMissing", "none")
	h.plan(api.Plan{Match: "GET /v2/certificates", Status: 500})
	if answer := b.get(); answer.GetFailed().GetCode() != contract.FailureCode_FAILURE_CODE_UNAVAILABLE {
		t.Errorf("%v", answer)
	}
}
