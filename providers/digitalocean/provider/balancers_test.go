package provider

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/plan"
	"github.com/grpc-ccm/grpc-ccm/providers/digitalocean/testapi"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	api "github.com/grpc-ccm/grpc-ccm/providers/testapi"
)

const uid = "8f7c0000-0000-4000-8000-00000000abcd"

// Two calls of the API in a row lose their connection, at each place within an Ensure and within a
// Delete. A new process continues. It makes one load balancer, deletes it, and leaves an unmarked
// one as it was.
func TestAKillAtAnyCallOfEnsureAndDeleteLeaksNothing(t *testing.T) { // CORE-6, CORE-14, LB-5
	for _, late := range []int{0, 300} {
		for _, lose := range []bool{true, false} {
			t.Run(fmt.Sprintf("lists late by %d ms, answers lost %t", late, lose), func(t *testing.T) {
				h := initialized(t)
				bystander, err := h.cloud.AddLoadBalancer("not-of-this-cluster")
				if err != nil {
					t.Fatal(err)
				}
				before := h.cloud.LoadBalancers()
				h.cloud.Limit(0, time.Hour)
				h.cloud.Set(testapi.Settings{ListLagMS: late})
				cut := func(at int) {
					h.plan(api.Plan{Skip: at, Times: 2, Lose: lose, Break: !lose})
				}
				again := func() {
					h.cloud.NoPlans()
					h.start()
					h.initialize(us)
				}
				for at := range 5 {
					b := h.service(fmt.Sprintf("8f7c0000-0000-4000-8000-00000000000%d", at))
					cut(at)
					b.ensure()
					again()
					b.handle = nil // The controller never got the answer.
					b.ensured()
					if all := h.cloud.LoadBalancers(); len(all) != 2 {
						t.Fatalf("cut at call %d of Ensure: %d load balancers, not this one and the bystander: %+v", at, len(all), all)
					}
					cut(at)
					b.remove()
					again()
					b.removed()
					if all := h.cloud.LoadBalancers(); len(all) != 1 || !reflect.DeepEqual(all, before) {
						t.Fatalf("cut at call %d of Delete: %+v; wanted the bystander %s as it was", at, all, bystander)
					}
				}
			})
		}
	}
}

func TestADeleteRightAfterACreateThatWasCutWaitsForTheList(t *testing.T) { // LB-12
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ListLagMS: 3_600_000})
	b := h.service(uid)
	h.plan(api.Plan{Match: "POST /v2/load_balancers", Lose: true})
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
	h.provider.now = func() time.Time { return time.Now().Add(time.Minute) }
	if answer := b.remove(); answer.GetDone() == nil {
		t.Errorf("%v", answer)
	}
}

// A load balancer on the unreadable page may be the Service's own.
func TestAPageOfLoadBalancersThatFailsMakesAndDeletesNothing(t *testing.T) {
	h := initialized(t)
	for i := range pageSize {
		if _, err := h.cloud.AddLoadBalancer(fmt.Sprintf("of-others-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	b := h.service(uid)
	b.ensured()
	b.handle, b.service.Status = nil, nil
	there := h.cloud.LoadBalancers()
	h.plan(api.Plan{Match: `GET /v2/load_balancers[?].*\bpage=2\b`, Status: 500, Times: -1})
	h.must(b.ensure().GetFailed(), sdk.CodeUnavailable, "APIFails", "listing load balancers")
	h.must(b.update().GetFailed(), sdk.CodeUnavailable, "APIFails", "listing load balancers")
	h.must(b.remove().GetFailed(), sdk.CodeUnavailable, "APIFails", "listing load balancers")
	if after := h.cloud.LoadBalancers(); !reflect.DeepEqual(after, there) {
		t.Errorf("there were %d load balancers, and now there are %d others", len(there), len(after))
	}
	h.cloud.NoPlans()
	b.removed()
	if left := len(h.cloud.LoadBalancers()); left != pageSize {
		t.Errorf("%d load balancers are left, not the %d of others", left, pageSize)
	}
}

func TestALoadBalancerThatIsNeverActiveIsPending(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{ProvisionMS: 3_600_000})
	b := h.service(uid)
	for range 3 {
		answer := b.ensure()
		if answer.GetPending() == nil || answer.GetPending().RetryAfter.AsDuration() != againWhileNew {
			t.Fatalf("%v", answer)
		}
	}
	b.service.Ports[0].Port = 8080
	if pending := b.ensure().GetPending(); pending == nil || !strings.Contains(pending.Message, "changed after that") {
		t.Errorf("%v; a load balancer that is being made takes no change", pending)
	}
	if found := b.get().GetFound(); found.GetInSync() || found.Presence != contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_PRESENT {
		t.Errorf("%v", found)
	}
	b.targets = b.targets[:1]
	if answer := b.update(); answer.GetPending() == nil {
		t.Errorf("%v", answer)
	}
	if h.cloud.Writes() != 1 {
		t.Errorf("%d writes; wanted the one that made it", h.cloud.Writes())
	}
	h.cloud.Set(testapi.Settings{Errored: true})
	h.must(b.ensure().GetFailed(), sdk.CodeUnavailable, "LoadBalancerErrored", "errored", "control panel")
	b.removed()
}

func TestALoadBalancerThatWasDeletedByHandIsMadeAnew(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	former := h.only().ID
	h.cloud.RemoveLoadBalancer(former)
	if found := b.get().GetFound(); found.GetPresence() != contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_ABSENT {
		t.Errorf("%v", found)
	}
	if failed := b.update().GetFailed(); failed.GetCode() != contract.FailureCode_FAILURE_CODE_NOT_FOUND {
		t.Errorf("%v", failed)
	}
	b.ensured()
	if h.only().ID == former {
		t.Error("it has the ID of the one that is gone")
	}
	// The load balancer is removed between the check and the write.
	b.service.Ports[0].Port = 8080
	h.plan(api.Plan{Match: "PUT /v2/load_balancers", Status: 404})
	if pending := b.ensure().GetPending(); pending == nil || !strings.Contains(pending.Message, "and not by the provider") {
		t.Errorf("%v", pending)
	}
	b.removed()
	b.removed()
}

func TestTwoClustersOfOneBackupHaveALoadBalancerEach(t *testing.T) { // LB-1, LB-2
	h := initialized(t)
	ours := h.service(uid)
	ours.ensured()
	before := h.only()
	h.initialize(them)
	theirs := h.service(uid)
	theirs.cluster = them
	theirs.ensured()
	theirs.handle = ours.handle
	h.must(theirs.ensure().GetFailed(), sdk.CodeConflict, "Conflict", before.ID)
	h.must(theirs.remove().GetFailed(), sdk.CodeConflict, "Conflict")
	theirs.handle = nil
	theirs.removed()
	if after := h.only(); !reflect.DeepEqual(after, before) {
		t.Errorf("%+v; before: %+v", after, before)
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	h := initialized(t)
	other, err := h.cloud.AddLoadBalancer("shop")
	if err != nil {
		t.Fatal(err)
	}
	b := h.service(uid, "name", "shop")
	for _, b.adopt = range []bool{false, true} { // Any user may write the annotation.
		h.must(b.ensure().GetFailed(), sdk.CodeConflict, "NameTaken", other, "shop", plan.VendorName(uid))
	}
	b = h.service(uid, "name", " shop ") // The wanted name has no spaces around.
	h.must(b.ensure().GetFailed(), sdk.CodeConflict, "NameTaken", other, "shop")
	b.removed()
	if h.only().Name != "shop" {
		t.Errorf("%+v", h.only())
	}
	h.cloud.RemoveLoadBalancer(other)
	b.ensured()
	if name := h.only().Name; !strings.HasPrefix(name, "shop.default.web."+uid+".") {
		t.Errorf("%q", name)
	}
	// The list lacks what an earlier create has made.
	h.cloud.Set(testapi.Settings{ListLagMS: 3_600_000})
	b.handle = nil
	if pending := b.ensure().GetPending(); pending == nil || !strings.Contains(pending.Message, "does not list it yet") {
		t.Errorf("%v", pending)
	}
	h.only()
}

func TestANameThatASecondLoadBalancerOfTheServiceHasIsAConflict(t *testing.T) {
	h := initialized(t)
	mark := plan.MarkOf(&sdk.Service{Namespace: "default", Name: "web", UID: uid}, us.OwnerId).String()
	ids := []string{}
	for _, name := range []string{"first." + mark, "second." + mark} {
		id, err := h.cloud.AddLoadBalancer(name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	b := h.service(uid, "type", "REGIONAL", "name", "second")
	b.handle = &ids[0]
	h.must(b.ensure().GetFailed(), sdk.CodeConflict, "NameTaken", ids[0], "second."+mark)
	b.removed()
}

func TestAQuotaIsAPrecondition(t *testing.T) {
	h := initialized(t)
	h.cloud.Set(testapi.Settings{LoadBalancerLimit: 1})
	h.service(uid).ensured()
	h.must(h.service("another").ensure().GetFailed(), sdk.CodePrecondition, "QuotaReached", "load balancer limit of 1")
	h.only()
}

func TestALoadBalancerThatIsBusyIsPendingAndNoLackOfRights(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	h.cloud.Set(testapi.Settings{BusyMS: 3_600_000})
	b.service.Ports[0].Port = 8080
	b.ensured()
	b.service.Ports[0].Port = 8081
	if pending := b.ensure().GetPending(); pending == nil {
		t.Error("a load balancer that is busy took a change")
	}
	b.targets = b.targets[:2]
	if answer := b.update(); answer.GetPending() == nil {
		t.Errorf("%v", answer)
	}
	if answer := b.remove(); answer.GetPending() == nil {
		t.Errorf("%v", answer)
	}
	h.cloud.Set(testapi.Settings{})
	b.ensured()
	if lb := h.only(); lb.ForwardingRules[0].EntryPort != 8081 || len(lb.DropletIDs) != 2 {
		t.Errorf("%+v", lb)
	}
	b.removed()
}

func TestADropletThatIsGoneFailsItsNodeAlone(t *testing.T) { // LB-17
	h := initialized(t)
	b := h.service(uid)
	b.targets = append(b.targets, node("gone", 999))
	answer := b.ensure()
	if answer.GetReady() == nil || len(answer.TargetErrors) != 1 || answer.TargetErrors[0].NodeName != "gone" {
		t.Fatalf("%v", answer)
	}
	h.must(answer.TargetErrors[0].Failure, sdk.CodePrecondition, "DropletMissing", "999")
	if found := b.get().GetFound(); found.GetInSync() {
		t.Error("it is in sync without a target")
	}
	if err := h.cloud.SetDroplet("node-0", ""); err != nil {
		t.Fatal(err)
	}
	updated := b.update()
	if updated.GetDone() == nil || len(updated.TargetErrors) != 2 || len(h.only().DropletIDs) != 2 {
		t.Errorf("%v %v", updated, h.only().DropletIDs)
	}
	b.targets = b.targets[1:3]
	b.ensured()
}

// DigitalOcean itself removes destroyed droplets, here after the provider has read the list.
func TestADropletThatIsRemovedAlreadyDoesNotKeepTheOthers(t *testing.T) {
	for gone := range 3 {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			h := initialized(t)
			b := h.service(uid)
			b.ensured()
			h.cloud.Forget()
			h.listed()
			h.plan(api.Plan{Match: "GET /v2/load_balancers[?]", Body: string(h.cloud.Calls()[0].Answer)})
			for i := range gone {
				if err := h.cloud.SetDroplet(fmt.Sprintf("node-%d", i), ""); err != nil {
					t.Fatal(err)
				}
			}
			b.targets = b.targets[2:]
			if answer := b.update(); answer.GetDone() == nil || len(h.only().DropletIDs) != 1 {
				t.Errorf("%v, %v", answer, h.only().DropletIDs)
			}
		})
	}
}

func TestADropletOfAnotherRegionOrNetworkFailsItsNodeAlone(t *testing.T) { // LB-17
	h := initialized(t)
	b := h.service(uid)
	b.ensured() // From here on the network of the load balancer is known.
	region := h.cloud.AddDroplet(testapi.NewDroplet{Name: "other-region", Region: "fra1"})
	network := h.cloud.AddDroplet(testapi.NewDroplet{Name: "other-network", VPC: testapi.VPCElsewhere})
	b.targets = append(b.targets, node("other-region", region), node("other-network", network))
	b.service.Ports[0].Port = 8080
	ensured, updated := b.ensure(), b.update()
	if ensured.GetReady() == nil || updated.GetDone() == nil || len(h.only().DropletIDs) != 3 || h.only().ForwardingRules[0].EntryPort != 8080 {
		t.Errorf("%v, %v, %+v", ensured, updated, h.only())
	}
	for _, wrong := range [][]*contract.TargetError{ensured.TargetErrors, updated.TargetErrors} {
		if len(wrong) != 2 {
			t.Fatalf("%v", wrong)
		}
		h.must(wrong[0].Failure, sdk.CodePrecondition, "DropletElsewhere", "VPC", testapi.VPCElsewhere)
		h.must(wrong[1].Failure, sdk.CodePrecondition, "DropletElsewhere", "region fra1")
	}
}

// The calls of docs/digitalocean.md: twenty Nodes join, one after another, with twenty load balancers.
func TestTwentyJoinsWithTwentyLoadBalancers(t *testing.T) {
	for _, tag := range []string{"", "k8s-worker"} {
		t.Run("tag="+tag, func(t *testing.T) {
			h := initialized(t, func(s *Settings) { s.TargetTag = tag })
			h.cloud.Limit(0, time.Hour)
			balancers := []*balancer{}
			for i := range 20 {
				b := h.service(fmt.Sprintf("8f7c0000-0000-4000-8000-0000000000%02d", i))
				b.ensured()
				balancers = append(balancers, b)
			}
			info, err := h.info.GetProviderInfo(h.ctx, &contract.GetProviderInfoRequest{})
			if err != nil {
				t.Fatal(err)
			}
			ignores := info.GetCapabilities().GetLoadBalancers().GetIgnoresNodes()
			h.cloud.Latency(20 * time.Millisecond)
			calls, routes := h.calls(func() {
				for i := range 20 {
					name := fmt.Sprintf("joined-%d", i)
					id := h.cloud.AddDroplet(testapi.NewDroplet{Name: name, Tags: []string{"k8s-worker"}})
					if ignores { // Then the controller makes no call.
						continue
					}
					turns, all := make(chan bool, 8), sync.WaitGroup{}
					for _, b := range balancers {
						b.targets = append(b.targets, node(name, id))
						turns <- true
						all.Go(func() {
							defer func() { <-turns }()
							if answer := b.update(); answer.GetDone() == nil {
								h.Errorf("%v", answer)
							}
						})
					}
					all.Wait()
				}
			})
			t.Logf("20 joins with 20 load balancers: %d calls %v", calls, routes)
			if limit := map[string]int{"": 700, "k8s-worker": 0}[tag]; calls > limit {
				t.Errorf("%d calls are more than %d", calls, limit)
			}
			for _, lb := range h.cloud.LoadBalancers() {
				if want := map[string]int{"": 23, "k8s-worker": 20}[tag]; len(lb.DropletIDs) != want {
					t.Fatalf("%d targets, not %d", len(lb.DropletIDs), want)
				}
			}
			for _, b := range balancers {
				if tag == "" && !b.get().GetFound().GetInSync() {
					t.Fatal("after Update it is not in sync")
				}
			}
		})
	}
}

func TestCallsOfALoadBalancer(t *testing.T) {
	h := initialized(t)
	b := h.service(uid)
	count := func(what string, want int, work func()) {
		t.Helper()
		calls, routes := h.calls(work)
		t.Logf("%s: %d calls %v", what, calls, routes)
		if calls != want {
			t.Errorf("%s: %d calls %v; docs/digitalocean.md says %d", what, calls, routes, want)
		}
	}
	count("Ensure of a new one", 2, func() { b.ensure() })
	count("Ensure of one that is as asked", 1, func() { b.ensure() })
	count("Get", 1, func() { b.get() })
	b.service.Ports[0].Port = 8080
	count("Ensure of one that is not", 2, func() { b.ensure() })
	b.targets = b.targets[1:]
	count("Update that removes a droplet", 2, func() { b.update() })
	count("Delete", 4, func() { b.remove() })
}

// DigitalOcean's API does not show that a load balancer is being deleted.
func TestALoadBalancerThatIsBeingDeletedIsNotReadyAgain(t *testing.T) { // LB-12
	h := initialized(t)
	b := h.service(uid)
	b.ensured()
	h.cloud.Set(testapi.Settings{DeleteMS: 3_600_000})
	if answer := b.remove(); answer.GetPending() == nil {
		t.Fatalf("%v", answer)
	}
	if found := b.get().GetFound(); found.GetPresence() != contract.LoadBalancerPresence_LOAD_BALANCER_PRESENCE_REMNANTS {
		t.Errorf("%v", found)
	}
	if answer := b.ensure(); answer.GetPending() == nil {
		t.Errorf("%v", answer)
	}
	if _, routes := h.calls(func() { b.remove() }); routes["DELETE /v2/load_balancers/{id}"] != 0 {
		t.Errorf("%v: it was deleted twice", routes)
	}
	h.provider.now = func() time.Time { return time.Now().Add(2 * leavingFor) }
	if _, routes := h.calls(func() { b.remove() }); routes["DELETE /v2/load_balancers/{id}"] != 1 {
		t.Errorf("%v: a deletion that had no effect is not repeated", routes)
	}
}

// Two load balancers with the mark of one Service: a create was cut off, and then a user changed the name in the annotation.
func TestTwoLoadBalancersOfOneServiceAreBothDeleted(t *testing.T) { // LB-12
	h := initialized(t)
	mark := plan.MarkOf(&sdk.Service{Namespace: "default", Name: "web", UID: uid}, us.OwnerId).String()
	for _, name := range []string{"first." + mark, "second." + mark, "a." + plan.MarkOf(&sdk.Service{Namespace: "default", Name: "web", UID: "other"}, us.OwnerId).String()} {
		if _, err := h.cloud.AddLoadBalancer(name); err != nil {
			t.Fatal(err)
		}
	}
	h.service(uid).removed()
	if name := h.only().Name; !strings.HasPrefix(name, "a.default.web.other.") {
		t.Errorf("%s is left", name)
	}
}
