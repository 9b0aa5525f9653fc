package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/testapi"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

func TestALoadBalancerIsMadeInOneWriteAndRemoved(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	before := h.cloud.Writes()
	calls, routes := h.calls(b.ensured)
	t.Logf("a load balancer made and checked: %d calls: %v", calls, routes)
	if writes := h.cloud.Writes() - before; writes != 1 {
		t.Errorf("it took %d writes", writes)
	}
	lb := h.only()
	if len(lb.Targets) != 3 || len(lb.Services) != 1 || lb.Services[0].DestinationPort != 30080 || lb.Labels[plan.LabelService] != uid || lb.Labels[plan.LabelOwner] != us.OwnerId || len(lb.PrivateNet) != 1 {
		t.Errorf("%+v", lb)
	}
	b.removed()
	if left := h.cloud.LoadBalancers(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAnnotationsAreHonoured(t *testing.T) {
	h := initialized(t)
	certificate := h.cloud.AddCertificate("web")
	b := h.service(uid, "name", "front", "type", "lb21", "algorithm-type", "least_connections", "protocol", "https", "http-certificates", "web", "http-redirect-http", "true",
		"http-sticky-sessions", "true", "http-cookie-name", "C", "http-cookie-lifetime", "60s", "http-timeout-idle", "90s", "uses-proxyprotocol", "true", "use-private-ip", "true",
		"disable-public-network", "true", "private-ipv4", "10.1.9.9", "health-check-protocol", "https", "health-check-port", "8443", "health-check-interval", "20", "health-check-timeout", "5s",
		"health-check-retries", "2", "health-check-http-domain", "example.com", "health-check-http-path", "/up", "http-status-codes", "200,204", "ipv4-rdns", "web.example.com", "location", "nbg1")
	b.ensured()
	lb := h.only()
	text, _ := json.Marshal(lb.Services[0])
	want := fmt.Sprintf(`{"protocol":"https","listen_port":80,"destination_port":30080,"proxyprotocol":true,"http":{"cookie_name":"C","cookie_lifetime":60,"certificates":[%d],"redirect_http":true,"sticky_sessions":true,"timeout_idle":90},"health_check":{"protocol":"http","port":8443,"interval":20,"timeout":5,"retries":2,"http":{"domain":"example.com","path":"/up","response":"","status_codes":["200","204"],"tls":true}}}`, certificate)
	if string(text) != want {
		t.Errorf("the listener is\n%s\nand should be\n%s", text, want)
	}
	if lb.Name != "front" || lb.LoadBalancerType.Name != "lb21" || lb.Algorithm.Type != "least_connections" || lb.PublicNet.Enabled || lb.PrivateNet[0].IP != "10.1.9.9" || !lb.Targets[0].UsePrivateIP || lb.PublicNet.IPv4.DNSPtr != "web.example.com" || lb.Location.Name != "nbg1" {
		t.Errorf("%+v", lb)
	}
	// LB-7: a cleared annotation loses its effect. Type, name, location, private address and reverse
	// DNS stay, as with Hetzner's own controller.
	b.service.Annotations = map[string]string{}
	b.ensured()
	lb = h.only()
	if text, _ := json.Marshal(lb.Services[0]); string(text) != `{"protocol":"tcp","listen_port":80,"destination_port":30080,"proxyprotocol":false,"http":null,"health_check":{"protocol":"tcp","port":30080,"interval":15,"timeout":10,"retries":3,"http":null}}` {
		t.Errorf("the listener is %s", text)
	}
	if !lb.PublicNet.Enabled || lb.Targets[0].UsePrivateIP || lb.Algorithm.Type != "round_robin" || lb.LoadBalancerType.Name != "lb21" {
		t.Errorf("%+v", lb)
	}
}

// The API attaches no load balancer that is attached, so a new address takes a detach and an attach.
func TestAPrivateAddressThatCannotBeHadLeavesTheLoadBalancerAttached(t *testing.T) {
	h := initialized(t)
	b := h.service(uid, "private-ipv4", "10.1.9.9", "use-private-ip", "true")
	b.ensured()
	other := h.service("7930c9eb-121c-48d1-81b3-829eae8cba01", "private-ipv4", "10.1.9.10")
	other.ensured()
	attached := func() string {
		for _, lb := range h.cloud.LoadBalancers() {
			if fmt.Sprint(lb.ID) == *b.handle && len(lb.PrivateNet) == 1 && len(lb.Targets) == 3 {
				return lb.PrivateNet[0].IP
			}
		}
		return "nowhere"
	}
	before := h.cloud.Writes()
	for ip, code := range map[string]sdk.Code{"10.1.0.4": sdk.CodePrecondition, "10.1.9.10": sdk.CodePrecondition, "10.200.0.1": sdk.CodeInvalid, "10.1.0.1": sdk.CodeInvalid} {
		b.service.Annotations[plan.Prefix+"private-ipv4"] = ip
		h.must(b.ensure().GetFailed(), code, map[sdk.Code]string{sdk.CodePrecondition: "AddressTaken", sdk.CodeInvalid: "AnnotationInvalid"}[code], plan.Prefix+"private-ipv4", ip)
	}
	if writes := h.cloud.Writes() - before; writes != 0 || attached() != "10.1.9.9" {
		t.Errorf("%d writes; it is attached with %s", writes, attached())
	}
	// An address that only Hetzner knows to be taken.
	b.service.Annotations[plan.Prefix+"private-ipv4"] = "10.1.9.11"
	h.plan(api.Plan{Match: "attach_to_network$", Status: 422, Body: `{"error":{"code":"ip_not_available","message":"ip is not available","details":{}}}`})
	h.must(b.ensure().GetFailed(), sdk.CodePrecondition, "RefusedByHetzner", "ip is not available")
	if attached() != "10.1.9.9" {
		t.Errorf("it is detached, or without its targets: %+v", h.cloud.LoadBalancers()[0])
	}
	b.ensured()
	if attached() != "10.1.9.11" {
		t.Errorf("it is attached with %s", attached())
	}
}

func TestALockedAttachLeavesTheLoadBalancerAttached(t *testing.T) {
	for _, row := range []struct {
		times int
		ready bool
		ip    string
	}{{3, true, "10.1.9.11"}, {12, false, "10.1.9.9"}} { // The provider tries about 10 times, and then tries the former address.
		t.Run(fmt.Sprint(row.times), func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid, "private-ipv4", "10.1.9.9", "use-private-ip", "true")
			b.ensured()
			b.service.Annotations[plan.Prefix+"private-ipv4"] = "10.1.9.11"
			h.plan(api.Plan{Match: "attach_to_network$", Status: 423, Times: row.times})
			answer := b.ensure()
			if lb := h.only(); (answer.GetReady() != nil) != row.ready || !row.ready && answer.GetPending() == nil || len(lb.PrivateNet) != 1 || lb.PrivateNet[0].IP != row.ip || len(lb.Targets) != 3 {
				t.Fatalf("%v, %+v", answer, lb)
			}
			if wait := answer.GetPending().GetRetryAfter().AsDuration(); !row.ready && wait != againAfterRestore {
				t.Errorf("the controller asks again after %v", wait)
			}
			b.ensured()
			if lb := h.only(); lb.PrivateNet[0].IP != "10.1.9.11" || len(lb.Targets) != 3 {
				t.Errorf("%+v", lb)
			}
		})
	}
}

func TestThePublicNetworkGoesOffAfterTheTargetsArePrivate(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	for _, private := range []string{"true", "false"} {
		b.service.Annotations = map[string]string{plan.Prefix + "use-private-ip": private, plan.Prefix + "disable-public-network": private}
		b.ensured()
		if lb := h.only(); lb.PublicNet.Enabled == (private == "true") || len(lb.Targets) != 3 || fmt.Sprint(lb.Targets[0].UsePrivateIP) != private {
			t.Errorf("%+v", lb)
		}
	}
}

func TestAShortHealthCheckIntervalShortensTheTimeout(t *testing.T) {
	h := initialized(t)
	b := h.service(uid, "health-check-interval", "5s")
	b.ensured()
	if check := h.only().Services[0].HealthCheck; check.Interval != 5 || check.Timeout != 5 {
		t.Errorf("%+v", check)
	}
}

func TestAnnotationsThatCannotBeHonouredAreRefusedByName(t *testing.T) {
	h := initialized(t)
	for name, value := range map[string]string{
		"certificate-type": "managed", "http-managed-certificate-domains": "example.com", "http-managed-certificate-name": "x", "http-managed-certificate-acme-staging": "true", "no-such": "1",
		"protocol": "udp", "algorithm-type": "random", "uses-proxyprotocol": "maybe", "health-check-interval": "1h", "health-check-port": "0", "http-cookie-name": "x", "node-selector": "a in",
		"private-ipv4": "fd00::1", "type": "lb99", "http-certificates": "none", "health-check-http-path": "/x", "private-subnet-ip-range": "10.0.0.0", "disable-public-network": "true",
		"ipv4": "192.0.2.4", "ipv6": "2001:db8::4",
	} {
		answer := h.service(uid, name, value).ensure()
		h.must(answer.GetFailed(), sdk.CodeInvalid, "AnnotationInvalid", plan.Prefix+name)
	}
	h.cloud.AddCertificate("web")
	for name, value := range map[string]string{"http-certificates": "web", "http-redirect-http": "true"} {
		answer := h.service(uid, "protocol", "http", name, value).ensure()
		h.must(answer.GetFailed(), sdk.CodeInvalid, "AnnotationInvalid", plan.Prefix+name)
	}
	if all := h.cloud.LoadBalancers(); len(all) > 0 {
		t.Errorf("made: %v", all)
	}
}

func TestALoadBalancerThatWouldShowNoAddressIsRefused(t *testing.T) {
	h := initialized(t, func(s *Settings) { s.UsePrivateIP, s.DisablePrivateIngress = true, true })
	b := h.service(uid, "disable-public-network", "true")
	h.must(b.ensure().GetFailed(), sdk.CodeInvalid, "AnnotationInvalid", plan.Prefix+"disable-public-network", plan.Prefix+"disable-private-ingress", plan.Prefix+"hostname")
	if all := h.cloud.LoadBalancers(); len(all) > 0 {
		t.Errorf("made: %v", all)
	}
	b.service.Annotations[plan.Prefix+"hostname"] = "web.example.com"
	b.ensured()
	b.service.Annotations = map[string]string{plan.Prefix + "disable-public-network": "true", plan.Prefix + "disable-private-ingress": "false"}
	b.ensured()
}

// A user may write any ID or name.
func TestAnAnnotationAdoptsNothingOfOthers(t *testing.T) {
	h := initialized(t)
	id, err := h.cloud.AddLoadBalancer("theirs", nil)
	if err != nil {
		t.Fatal(err)
	}
	before := h.only()
	for _, adopt := range []bool{false, true} {
		b := h.service(uid, "id", fmt.Sprint(id))
		b.adopt = adopt
		h.must(b.ensure().GetFailed(), sdk.CodeConflict, "LoadBalancerNotOurs", plan.AnnotationID, fmt.Sprint(id), "an address in the Service's status")
		b = h.service(uid, "name", "theirs")
		b.adopt = adopt
		h.must(b.ensure().GetFailed(), sdk.CodeConflict, "NameTaken", plan.AnnotationName)
		b.removed()
	}
	if after := h.only(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("it was changed: %+v", after)
	}
}

func TestWhatHetznersControllerMadeIsKeptAndFoundByItAgain(t *testing.T) {
	h := initialized(t)
	id, err := h.cloud.AddLoadBalancer(plan.VendorName(uid), map[string]string{plan.LabelService: uid, "team": "a"})
	if err != nil {
		t.Fatal(err)
	}
	b := h.service(uid)
	h.must(b.ensure().GetFailed(), sdk.CodeConflict, "Conflict")
	h.must(b.remove().GetFailed(), sdk.CodeConflict, "Conflict")
	if b.adopt = true; b.get().GetFound().GetOwnership() != contract.Ownership_OWNERSHIP_UNMARKED {
		t.Errorf("%v", b.get())
	}
	b.ensured()
	lb := h.only()
	// For the way back: Hetzner's controller searches for its label. Label, name and targets must still be there.
	if lb.ID != id || lb.Name != plan.VendorName(uid) || lb.Labels[plan.LabelService] != uid || lb.Labels["team"] != "a" || len(lb.Targets) != 3 {
		t.Errorf("%+v", lb)
	}
}

func TestTwoClustersOfOneBackupHaveTheirOwn(t *testing.T) {
	h := initialized(t)
	ours := h.service(uid)
	ours.ensured()
	first := h.only()
	h.start()
	h.initialize(them)
	theirs := h.service(uid)
	theirs.cluster, theirs.harness = them, h
	theirs.ensured()
	if all := h.cloud.LoadBalancers(); len(all) != 2 {
		t.Fatalf("%v", all)
	}
	theirs.handle = ours.handle
	h.must(theirs.remove().GetFailed(), sdk.CodeConflict, "Conflict")
	theirs.handle = nil
	theirs.removed()
	if left := h.only(); left.ID != first.ID {
		t.Errorf("left is %v", left)
	}
}

// The other cluster took a new owner ID, and its load balancers kept the names that came from the former one.
func TestALoadBalancerOfAnotherClusterWithOurNameIsAConflict(t *testing.T) { // LB-24, row 7
	h := initialized(t)
	id, err := h.cloud.AddLoadBalancer(plan.DerivedName(us.OwnerId, uid), map[string]string{plan.LabelService: uid, plan.LabelOwner: them.OwnerId})
	if err != nil {
		t.Fatal(err)
	}
	before := h.only()
	b := h.service(uid)
	for _, b.adopt = range []bool{false, true} {
		h.must(b.ensure().GetFailed(), sdk.CodeConflict, "NameTaken", fmt.Sprint(id), plan.AnnotationName)
	}
	if after := h.only(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("it was changed: %+v", after)
	}
	b.service.Annotations[plan.AnnotationName] = "ours"
	b.ensured()
}

// The process dies at each of the first calls of the API in turn, and the call or its answer is lost. A new process continues, makes nothing twice, and leaves nothing.
func TestKilledAtEachCallLeaksNothing(t *testing.T) {
	for _, carried := range []bool{true, false} {
		for skip := range 9 {
			t.Run(fmt.Sprintf("carried=%v,call=%d", carried, skip), func(t *testing.T) {
				h := initialized(t)
				other, err := h.cloud.AddLoadBalancer("other", map[string]string{"team": "b"})
				if err != nil {
					t.Fatal(err)
				}
				b := h.service(uid, "type", "lb21", "private-ipv4", "10.1.9.9")
				h.plan(api.Plan{Skip: skip, Lose: carried, Break: !carried})
				b.ensure()
				h.cloud.NoPlans()
				b.handle = nil
				h.start()
				h.initialize(us)
				b.ensured()
				if all := h.cloud.LoadBalancers(); len(all) != 2 {
					t.Fatalf("%d load balancers: %v", len(all), all)
				}
				h.plan(api.Plan{Skip: skip % 3, Lose: carried, Break: !carried})
				b.remove()
				h.cloud.NoPlans()
				h.start()
				h.initialize(us)
				b.handle = nil
				b.removed()
				if left := h.only(); left.ID != other || left.Labels["team"] != "b" {
					t.Errorf("left: %v", left)
				}
			})
		}
	}
}

func TestQuotaRefusalsAndLimitsAreSaid(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{LoadBalancerLimit: 1})
	h.service(uid).ensured()
	second := h.service("7930c9eb-121c-48d1-81b3-829eae8cba01")
	h.must(second.ensure().GetFailed(), sdk.CodePrecondition, "QuotaReached", "load balancer limit exceeded")
	h.cloud.Set(testapi.Settings{})
	h.plan(api.Plan{Match: "POST /v1/load_balancers$", Status: 422, Times: 2, Body: `{"error":{"code":"invalid_input","message":"invalid input","details":{"fields":[{"name":"services","messages":["is odd"]}]}}}`})
	h.must(second.ensure().GetFailed(), sdk.CodeInvalid, "RefusedByHetzner", "services: is odd")
	h.plan(api.Plan{Match: "POST /v1/load_balancers$", Status: 423, Times: 2})
	h.must(second.ensure().GetFailed(), sdk.CodeBusy, "Busy")
}

// A load balancer on the unreadable page may be the Service's own.
func TestAPageOfLoadBalancersThatFailsMakesAndDeletesNothing(t *testing.T) {
	h := initialized(t)
	for i := range pageSize {
		if _, err := h.cloud.AddLoadBalancer(fmt.Sprintf("of-others-%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	b := h.service(uid)
	b.ensured()
	b.handle, b.service.Status = nil, nil
	there := fmt.Sprint(h.cloud.LoadBalancers())
	h.plan(api.Plan{Match: `GET /v1/load_balancers[?].*\bpage=2\b`, Status: 502, Times: -1})
	h.must(b.ensure().GetFailed(), sdk.CodeUnavailable, "APIFails", "listing load balancers")
	h.must(b.update().GetFailed(), sdk.CodeUnavailable, "APIFails", "listing load balancers")
	h.must(b.remove().GetFailed(), sdk.CodeUnavailable, "APIFails", "listing load balancers")
	if after := fmt.Sprint(h.cloud.LoadBalancers()); after != there {
		t.Errorf("%s\nbefore: %s", after, there)
	}
	h.cloud.NoPlans()
	b.removed()
	if left := len(h.cloud.LoadBalancers()); left != pageSize {
		t.Errorf("%d load balancers are left, not the %d of others", left, pageSize)
	}
}

func TestAnActionThatDoesNotEndIsPendingWithTheHandle(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ActionMS: 3_600_000})
	b := h.service(uid)
	for range 2 {
		if answer := b.ensure(); answer.GetPending() == nil || b.handle == nil {
			t.Fatalf("%v", answer)
		}
		if b.get().GetFound().GetInSync() {
			t.Error("it is in sync while it is being made (LB-14)")
		}
	}
	if answer := b.remove(); answer.GetPending() == nil {
		t.Errorf("a locked one is %v", answer)
	}
	h.cloud.EndActions("", "")
	b.ensured()
	h.only()
}

// The API gives 25 actions in a page: those of other load balancers must not hide this one's.
func TestWhatIsBeingMadeIsSeenAmongManyOthers(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ActionMS: 3_600_000})
	all := sync.WaitGroup{}
	made := make([]*balancer, 30)
	for i := range made {
		made[i] = h.service(fmt.Sprintf("0d4fcd77-3818-4000-8299-%012d", i))
		all.Go(func() { made[i].ensure() })
	}
	all.Wait()
	before := h.cloud.Writes()
	for _, b := range made {
		if b.get().GetFound().GetInSync() {
			t.Fatal("it is in sync while it is being made (LB-14)")
		}
		b.service.Ports[0].Port = 8080
		if answer := b.ensure(); answer.GetPending() == nil {
			t.Fatalf("%v", answer)
		}
	}
	if writes := h.cloud.Writes() - before; writes != 0 {
		t.Errorf("%d writes to load balancers that are being made", writes)
	}
}

func TestAnActionThatFailsIsSaidAndTriedAgain(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ActionMS: 3_600_000})
	b := h.service(uid)
	answers := make(chan *contract.EnsureLoadBalancerResponse, 1)
	go func() {
		answer, _ := h.balancers.EnsureLoadBalancer(h.ctx, &contract.EnsureLoadBalancerRequest{Cluster: us, Service: b.service, Targets: set(b.targets)})
		answers <- answer
	}()
	h.until("it is being made", func() (bool, any) { return len(h.cloud.LoadBalancers()) == 1, nil })
	h.cloud.EndActions("action_failed", "no capacity")
	answer := <-answers
	h.must(answer.GetFailed(), sdk.CodeUnavailable, "ActionFailed", "no capacity", "action_failed")
	if answer.Handle == nil {
		t.Error("the handle is not told (LB-3)")
	}
	h.cloud.Set(testapi.Settings{})
	b.ensured()
	h.only()
}

func TestRemovedByHandBetweenTwoCallsIsMadeAnew(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	first := h.only()
	h.cloud.RemoveLoadBalancer(first.ID)
	b.ensured()
	if h.only().ID == first.ID {
		t.Error("it is the old one")
	}
	h.cloud.ChangeLoadBalancer(h.only().ID, func(lb *schema.LoadBalancer) { lb.Targets = []schema.LoadBalancerTarget{} })
	if b.get().GetFound().GetInSync() {
		t.Error("in sync without its targets")
	}
	b.ensured()
}

func TestATargetThatIsWrongIsItsOwnTroubleAlone(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.targets = append(b.targets, node("gone", "hcloud://99999"), node("robot", "hrobot://7"))
	answer := b.ensure()
	if answer.GetReady() == nil || len(answer.TargetErrors) != 2 || len(h.only().Targets) != 3 {
		t.Fatalf("%v", answer)
	}
}

func TestALateListMakesNoSecondOne(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ListLagMS: 3_600_000})
	b := h.service(uid)
	b.ensure()
	b.handle = nil
	if answer := b.ensure(); answer.GetPending() == nil {
		t.Errorf("%v", answer)
	}
	h.cloud.Set(testapi.Settings{})
	b.ensured()
	h.only()
}

func TestADeleteRightAfterACreateThatWasCutWaitsForTheList(t *testing.T) { // LB-12
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ListLagMS: 3_600_000})
	b := h.service(uid)
	h.plan(api.Plan{Match: "POST /v1/load_balancers$", Lose: true})
	b.ensure()
	b.handle = nil
	b.service.DeletionTime = timestamppb.Now()
	if answer := b.remove(); answer.GetPending() == nil {
		t.Fatalf("%v; the list is late, and the load balancer would be left", answer)
	}
	h.cloud.Set(testapi.Settings{})
	h.until("the load balancer is gone", func() (bool, any) {
		answer := b.remove()
		return len(h.cloud.LoadBalancers()) == 0, answer
	})
}

// 20 Nodes join one after the other, and each of 20 load balancers gets each Node as a target.
func TestTwentyJoinsWithTwentyLoadBalancersStayBelowTheLimit(t *testing.T) {
	h := initialized(t)
	all := []*balancer{}
	for i := range 20 {
		b := h.service(fmt.Sprintf("0d4fcd77-3818-4000-8299-%012d", i))
		b.ensured()
		all = append(all, b)
	}
	h.cloud.Limit(0, time.Hour)
	calls, routes := h.calls(func() {
		for join := range 20 {
			id := h.cloud.AddServer(testapi.NewServer{Name: fmt.Sprintf("join-%d", join)})
			for _, b := range all {
				b.targets = append(b.targets, node(fmt.Sprintf("join-%d", join), fmt.Sprintf("hcloud://%d", id)))
				answer, err := h.balancers.UpdateLoadBalancer(h.ctx, &contract.UpdateLoadBalancerRequest{Cluster: us, Service: b.service, Handle: b.handle, Targets: set(b.targets)})
				if err != nil || answer.GetDone() == nil {
					t.Fatal(answer, err)
				}
			}
		}
	})
	t.Logf("20 joins with 20 load balancers: %d calls: %v", calls, maps.Clone(routes))
	if calls > 1_200 {
		t.Errorf("%d calls: %v", calls, routes)
	}
}
