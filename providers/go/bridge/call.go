package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// logger is klog for the SDK.
var logger = slog.New(logr.ToSlogHandler(klog.Background()))

// places limits how many methods of the cloud run at once in one group, such as those about load balancers. A method that ignores its context keeps
// its place until it has really returned. So the number of running methods is bounded.
type places struct {
	free chan struct{}
	// The methods that still hold a place after their calls have ended.
	mu       sync.Mutex
	overruns map[*running]struct{}
}

// running is one call of the cloud.
type running struct {
	method string
	began  time.Time
	ended  bool
}

func newPlaces(most int) *places {
	return &places{free: make(chan struct{}, most), overruns: map[*running]struct{}{}}
}

// leave frees the place of a method that has returned.
func (p *places) leave(call *running) {
	p.mu.Lock()
	call.ended = true
	_, late := p.overruns[call]
	delete(p.overruns, call)
	p.mu.Unlock()
	<-p.free
	if late {
		klog.InfoS("A method of the cloud that ignored its context has returned at last", "method", call.method, "took", time.Since(call.began))
	}
}

// overrun records a method whose call has ended, unless the method has just ended too.
func (p *places) overrun(call *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !call.ended {
		p.overruns[call] = struct{}{}
	}
}

// overrunning returns the oldest method whose call has ended, and the number of such methods.
func (p *places) overrunning() (method string, since time.Time, many int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for call := range p.overruns {
		if method == "" || call.began.Before(since) {
			method, since = call.method, call.began
		}
	}
	return method, since, len(p.overruns)
}

// ask runs methods of the cloud in one of the places, and waits for them within the call's time,
// as sdk.Attempt does. It calls ended when they have really ended, or when the call is over before
// they begin.
func ask[Answer any](ctx context.Context, b *Bridge, taken *places, method string, within sdk.Budget, ended func(), work func(context.Context) (Answer, error)) (Answer, error) {
	var none Answer
	if ended == nil {
		ended = func() {}
	}
	stopping, stop := context.WithDeadline(ctx, within.Stop)
	defer stop()
	select {
	case taken.free <- struct{}{}:
	case <-stopping.Done():
		ended()
		if len(taken.free) < cap(taken.free) {
			// A place is free, so the call does not lack a place: its time is over.
			return none, fmt.Errorf("%s: %w", method, stopping.Err())
		}
		return none, fmt.Errorf("%s: %w", method, errNoPlace)
	}
	// If both were ready, select may have taken the place although the call is over. A method that began now could write for a controller that no longer
	// leads (CORE-8).
	if err := stopping.Err(); err != nil {
		<-taken.free
		ended()
		return none, fmt.Errorf("%s: %w", method, err)
	}
	call := &running{method: method, began: time.Now()}
	answer, err := sdk.Attempt(ctx, within, logger, method, func(stopping context.Context, err error) {
		b.noteContact(stopping, err)
		taken.leave(call)
		ended()
	}, work)
	var overran *sdk.OverrunError
	if errors.As(err, &overran) {
		taken.overrun(call)
	}
	return answer, err
}

// guarded runs methods of the cloud in the caller's goroutine without a time limit. It is for short methods, such as one that returns a name, and for
// the cloud's start, which runs in a separate goroutine.
func guarded[Answer any](method string, work func() Answer) (Answer, error) {
	return sdk.Guarded(logger, method, func() (Answer, error) { return work(), nil })
}
