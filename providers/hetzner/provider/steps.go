package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
	"github.com/grpc-ccm/grpc-ccm/providers/hetzner/plan"
)

// After more locked targets in a row than this the provider checks whether the load balancer itself
// is locked.
const mostLocked = 2

// The longest pause before the provider repeats an attach that is locked.
const attachPause = time.Second

// The codes of failures that another try soon would not change.
var refusals = []sdk.Code{sdk.CodeInvalid, sdk.CodePrecondition, sdk.CodeConflict, sdk.CodeInternal}

// carryOut makes the calls of the steps, and then reads the load balancer again, because addresses
// depend on networks. A target that Hetzner refuses becomes a target error, and carryOut does not
// try it again. After a failed change of type the load balancer keeps its type for this call, and
// carryOut returns the error when it has done the rest.
func (r *request) carryOut(ctx context.Context, lb *hcloud.LoadBalancer, wanted *plan.Wanted, wrong map[string]error, made bool) (*hcloud.LoadBalancer, error) {
	for range 5 {
		steps := plan.Steps(lb, wanted)
		if len(steps) == 0 {
			return lb, r.typeError
		}
		if err := r.run(ctx, lb, steps, wrong); err != nil {
			return nil, r.withTypeError(err)
		}
		wanted.Targets = slices.DeleteFunc(wanted.Targets, func(target plan.Target) bool { return wrong[target.Node] != nil })
		// The first step marks an adopted load balancer, so it is ours now.
		r.notes.Handle(plan.Handle(lb))
		var err error
		if lb, err = r.again(ctx, lb.ID); err != nil {
			return nil, err
		}
		if r.typeError != nil {
			wanted.KeepType(lb)
		}
	}
	if len(plan.Steps(lb, wanted)) == 0 {
		return lb, r.typeError
	}
	return nil, sdk.Internal("load balancer %d is not as it was made: %s does not stay", lb.ID, plan.Steps(lb, wanted)[0].What)
}

// withTypeError returns the error of a call in which the change of type may have failed before. A refusal can follow from that, so the first error counts.
// With other errors the next call comes sooner than after a refusal, and does the rest.
func (r *request) withTypeError(err error) error {
	var pending *sdk.PendingError
	var failure *sdk.Failure
	switch {
	case r.typeError == nil:
		return err
	case errors.As(err, &pending):
		return sdk.Pending(pending.RetryAfter, "%s; before that: %v", pending.Message, r.typeError)
	case errors.As(err, &failure) && slices.Contains(refusals, failure.Code):
		return r.typeError
	}
	return err
}

// checkAddress returns an error if the load balancer cannot get its new private address. The API refuses such an address only after the load balancer is detached from its network.
func (r *request) checkAddress(ctx context.Context, lb *hcloud.LoadBalancer, wanted *plan.Wanted) error {
	if !plan.Moves(lb, wanted) {
		return nil
	}
	network, _, err := r.p.api.Network.GetByID(ctx, wanted.Network)
	if err := r.p.api.done(ctx, r.call, fmt.Sprintf("asking for the network %d", wanted.Network), err); err != nil {
		return err
	}
	if network == nil {
		return sdk.Precondition("the project has no network %d", wanted.Network).Because("NetworkUnknown")
	}
	servers, err := r.p.servers.List(ctx, r.call, 0)
	if err == nil {
		err = r.list(ctx)
	}
	if err != nil {
		return err
	}
	return plan.CheckAddress(wanted, lb, network, servers, r.all)
}

// attachAgain attaches a load balancer with its former address and its former targets, because Hetzner did not attach it with the new address: the retries could fail too, and the load
// balancer would stay detached. It reports whether the load balancer is attached.
func (r *request) attachAgain(ctx context.Context) bool {
	former, network, nobody := r.former, r.formerNet, map[string]error{}
	r.former = nil
	err := r.run(ctx, former, []plan.Step{plan.Attach(network.Network, network.IP, nil)}, nobody)
	attached := err == nil
	var now *hcloud.LoadBalancer
	if attached {
		now, err = r.again(ctx, former.ID)
	}
	if err == nil { // A detach removes the targets with private addresses.
		targets := plan.TargetsOf(former)
		for i := range targets {
			targets[i].Node = targets[i].String() // One that cannot be added does not stop the others.
		}
		err = r.run(ctx, now, plan.TargetSteps(now, targets), nobody)
	}
	if err != nil || len(nobody) > 0 {
		slog.Warn("could not restore a load balancer that was detached from its network", "load balancer", former.ID, "address", network.IP, "error", err, "targets", nobody)
	}
	return attached
}

// run makes the calls of the steps, up to a step that changes the network, or fails to change the
// type. A target that is locked, that Hetzner refuses, or whose error is its own (ofTargetAlone) is
// an entry in wrong, and stops no other target (LB-17). One that Hetzner does not remove stops no
// other step, and is the error of the call.
func (r *request) run(ctx context.Context, lb *hcloud.LoadBalancer, steps []plan.Step, wrong map[string]error) error {
	var late error
	locked, inRow := map[string]error{}, 0
	free := false // An action ended, or none runs: the load balancer itself is not locked.
	for _, step := range steps {
		if err := sdk.BeforeWrite(ctx); err != nil {
			return err
		}
		action, err := r.do(ctx, lb, step)
		if step.Node != "" && isCode(err, hcloud.ErrorCodeTargetAlreadyDefined) {
			err = nil
		}
		own, busy, notRemoved := ofTargetAlone(err), isBusy(err), step.Removes != nil && isCode(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound, "load_balancer_target_not_found")
		what := fmt.Sprintf("load balancer %d: %s", lb.ID, step.What)
		if step.Node != "" && ofCallOrAction(err, hcloud.ErrorCodeLocked) {
			// The server is locked, or the load balancer is.
			locked[step.Node] = failureOf(what, err).After(againWhileLocked)
			if inRow++; inRow == mostLocked+1 {
				if err := r.notLocked(ctx, lb); err != nil {
					return err
				}
				free = true
			}
			continue
		}
		inRow = 0
		free = free || err == nil && action != nil
		err = r.ended(ctx, what, err)
		var failure *sdk.Failure
		failed := errors.As(err, &failure)
		if step.Node != "" && failed && (own || slices.Contains(refusals, failure.Code)) {
			wrong[step.Node] = failure
			continue
		}
		if step.Node != "" && busy && !failed {
			late = err // The others are done first (LB-17).
			continue
		}
		if notRemoved {
			// Hetzner itself removes the targets of deleted servers, and then refuses a call that removes them.
			now, lookErr := r.again(ctx, lb.ID)
			if lookErr != nil {
				return lookErr
			}
			if slices.Contains(plan.TargetsOf(now), *step.Removes) {
				late = err
			}
			continue
		}
		if step.Type && failed && failure.Code != sdk.CodeThrottled && failure.Code != sdk.CodeCredentials {
			r.typeError = err
			return nil
		}
		if err != nil {
			if step.Network && step.Former == nil && r.former != nil && (failed || busy) {
				attached := r.attachAgain(ctx)
				// Another try soon would take all private targets away again.
				switch {
				case attached && busy:
					return sdk.Pending(againAfterRestore, "%s: the load balancer stays locked, and got its former address again", what)
				case attached && !slices.Contains(refusals, failure.Code):
					return failure.After(againAfterRestore)
				}
			}
			return err
		}
		if step.Network {
			if r.former, r.formerNet = nil, step.Former; step.Former != nil {
				r.former = lb
			}
			return nil
		}
	}
	if len(locked) > 0 && !free {
		if err := r.notLocked(ctx, lb); err != nil {
			return err
		}
	}
	maps.Copy(wrong, locked)
	return late
}

// do carries out one step. For some seconds it repeats an attach that is locked: the load balancer
// may have just been detached, and reaches no private target until it is attached.
// If the load balancer changed during the request, it repeats, once, a call that adds a Node's target.
func (r *request) do(ctx context.Context, lb *hcloud.LoadBalancer, step plan.Step) (*hcloud.Action, error) {
	if step.Type {
		if err := r.lastTypeError(ctx, lb); err != nil {
			return nil, err
		}
	}
	until := time.Now().Add(actionPatience)
	for pause := firstLook; ; pause = min(2*pause, attachPause) {
		action, err := step.Do(ctx, &r.p.api.LoadBalancer, lb)
		if err == nil {
			err = r.p.api.await(ctx, action)
		}
		locked := step.Network && step.Former == nil && isBusy(err) && time.Now().Add(pause).Before(until)
		changed := step.Node != "" && pause == firstLook && ofCallOrAction(err, hcloud.ErrorCodeConflict)
		if !locked && !changed {
			return action, err
		}
		select {
		case <-ctx.Done():
			return action, err
		case <-time.After(pause):
		}
	}
}

// lastTypeError returns the error of the last change of type that failed, if that was a short time
// ago and not because of a lock. A change can fail after its call has ended.
func (r *request) lastTypeError(ctx context.Context, lb *hcloud.LoadBalancer) error {
	failed, _, err := r.p.api.LoadBalancer.Action.ListFor(ctx, lb, hcloud.ActionListOpts{
		ListOpts: hcloud.ListOpts{PerPage: pageSize}, Status: []hcloud.ActionStatus{hcloud.ActionStatusError}, Sort: []string{"id:desc"},
	})
	if err != nil {
		return err
	}
	last := slices.IndexFunc(failed, func(action *hcloud.Action) bool { return action.Command == "change_type" })
	if last < 0 || time.Since(failed[last].Finished) > againAfterType {
		return nil
	}
	if err := failed[last].Error(); !isBusy(err) {
		return err
	}
	return nil
}

// notLocked returns pending while an action runs on the load balancer.
func (r *request) notLocked(ctx context.Context, lb *hcloud.LoadBalancer) error {
	running, err := r.running(ctx, lb)
	return errors.Join(err, r.waits(running))
}
