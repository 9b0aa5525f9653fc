package bridge

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// The methods of the cloud are told to stop when this share of a call's time is over (CORE-9: an answer comes before 80 % of it).
	stopAfter = 0.7
	// How much longer they are then waited for, as a share of the call's time.
	graceAfter = 0.07
	// And never less than this: what has not been given the processor yet has ignored nothing. A call that is shorter ends by its own deadline.
	leastGrace = 20 * time.Millisecond
	// A call without a deadline gets this one: no caller of the contract makes any.
	noDeadline = 5 * time.Minute
)

// budget is how long a call may take.
type budget struct {
	// When the methods of the cloud are told to stop.
	stop time.Time
	// How much longer they are waited for.
	grace time.Duration
}

func budgetOf(ctx context.Context) budget {
	now := time.Now()
	whole := noDeadline
	if deadline, ok := ctx.Deadline(); ok {
		whole = time.Until(deadline)
	}
	return budget{
		stop:  now.Add(time.Duration(float64(whole) * stopAfter)),
		grace: max(time.Duration(float64(whole)*graceAfter), leastGrace),
	}
}

// places are how many methods of the cloud may run at once for one service. A method that ignores its context keeps its place until it has really returned: what
// runs is bounded whatever the cloud does.
type places struct {
	free chan struct{}
	// What holds a place although nobody waits for it any more.
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

// leave gives the place of a call that has ended back.
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

// overrun notes a call that nobody waits for any longer, unless it has just ended.
func (p *places) overrun(call *running) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !call.ended {
		p.overruns[call] = struct{}{}
	}
	return !call.ended
}

// overrunning names the oldest call that nobody waits for any more, and how many there are.
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

// ask runs methods of the cloud in a goroutine of its own and waits for them within the call's time: a panic becomes an error, and a method that ignores its
// context does not keep the call from being answered. ended is called once the goroutine has really ended (or was never begun).
func ask[Answer any](ctx context.Context, b *Bridge, taken *places, method string, within budget, ended func(), work func(context.Context) (Answer, error)) (Answer, error) {
	var none Answer
	if ended == nil {
		ended = func() {}
	}
	stopping, stop := context.WithDeadline(ctx, within.stop)
	select {
	case taken.free <- struct{}{}:
	case <-stopping.Done():
		over := stopping.Err()
		stop()
		ended()
		if len(taken.free) < cap(taken.free) {
			// Its time was over as soon as it came: that is nobody's place.
			return none, fmt.Errorf("%s: %w", method, over)
		}
		return none, fmt.Errorf("%s: %w", method, errNoPlace)
	}
	type outcome struct {
		answer Answer
		err    error
	}
	outcomes := make(chan outcome, 1)
	call := &running{method: method, began: time.Now()}
	go func() {
		result := outcome{err: &panicked{method, "its goroutine was ended by runtime.Goexit"}}
		defer func() {
			b.noteContact(stopping, result.err)
			stop()
			taken.leave(call)
			// Before it is answered: who hears the answer finds the object free.
			ended()
			outcomes <- result
		}()
		result.answer, result.err = protected(stopping, method, work)
	}()

	select {
	case result := <-outcomes:
		return result.answer, result.err
	case <-stopping.Done():
	}
	// Nobody waits any more, or the time is over: what minds its context returns now.
	grace := time.NewTimer(within.grace)
	defer grace.Stop()
	select {
	case result := <-outcomes:
		return result.answer, result.err
	case <-grace.C:
	}
	if taken.overrun(call) {
		klog.InfoS("A method of the cloud ignores its context", "method", method, "ranFor", time.Since(call.began))
		return none, &overran{method, time.Since(call.began)}
	}
	result := <-outcomes
	return result.answer, result.err
}

// protected runs the cloud's code: a panic becomes an error.
func protected[Answer any](ctx context.Context, method string, work func(context.Context) (Answer, error)) (answer Answer, err error) {
	defer func() {
		if value := recover(); value != nil {
			klog.ErrorS(nil, "The cloud panicked", "method", method, "panic", value, "stack", string(debug.Stack()))
			err = &panicked{method, value}
		}
	}()
	return work(ctx)
}

// holds are the objects that a call which changes something works on (CORE-7).
type holds struct {
	mu    sync.Mutex
	taken map[string]struct{}
}

// take takes hold of an object, or says that somebody else holds it.
func (h *holds) take(object string) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, held := h.taken[object]; held {
		return nil, false
	}
	if h.taken == nil {
		h.taken = map[string]struct{}{}
	}
	h.taken[object] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.taken, object)
	}, true
}

// guarded runs a short method of the cloud in place: one that names something and calls nobody.
func guarded[Answer any](method string, work func() Answer) (answer Answer, err error) {
	defer func() {
		if value := recover(); value != nil {
			klog.ErrorS(nil, "The cloud panicked", "method", method, "panic", value, "stack", string(debug.Stack()))
			err = &panicked{method, value}
		}
	}()
	return work(), nil
}
