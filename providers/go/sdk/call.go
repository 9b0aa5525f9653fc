package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

const (
	// The context of the vendor's code ends when this share of a call's time is over, so that an
	// answer comes before 80 % of it (CORE-9).
	stopAfter = 0.7
	// How much longer the call waits for the method: a share of the call's time, and the least time. So a method that got no CPU time can still
	// notice that its context has ended.
	graceAfter = 0.07
	leastGrace = 20 * time.Millisecond
	// The budget of a call without a deadline. The SDK adds no deadline (CORE-9), so this is longer
	// than any call. In oneByOne it is the budget of an item, because the context has the deadline
	// of the call.
	noDeadline = 100 * 365 * 24 * time.Hour
)

// Budget is the part of a call's time that a vendor's methods may use. A call of more than 200 ms is
// then answered before 80 % of its time is over (CORE-9). A call has one Budget for all its methods:
// [BudgetOf] makes it.
type Budget struct {
	// Stop is when the method's context ends.
	Stop time.Time
	// Grace is the further time that the call waits for the method.
	Grace time.Duration
}

// BudgetOf returns the budget of a call by the context's deadline. Without a deadline the budget
// is 100 years.
func BudgetOf(ctx context.Context) Budget {
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		return Budget{now.Add(noDeadline), leastGrace}
	}
	whole := deadline.Sub(now)
	return Budget{now.Add(time.Duration(float64(whole) * stopAfter)), max(time.Duration(float64(whole)*graceAfter), leastGrace)}
}

// PanicError is a panic of a vendor's method.
type PanicError struct {
	// Method is what panicked.
	Method string
	// Value is the value of the panic, or a text that runtime.Goexit ended its goroutine.
	Value any
}

// Error names the method and the value. The text is for logs, and for events if operators may read
// the vendor's texts.
func (p *PanicError) Error() string {
	return fmt.Sprintf("the cloud's method %s panicked: %v", p.Method, p.Value)
}

// OverrunError is a method that still ran when its call had to be answered, although its context
// had ended.
type OverrunError struct {
	// Method is what still runs.
	Method string
	// After is how long it had run.
	After time.Duration
}

// Error names the method and the consequence.
func (o *OverrunError) Error() string {
	return fmt.Sprintf("the cloud's method %s had not returned after %s, although its context was cancelled; if it changes an object, other calls that change the object are answered BUSY until it returns",
		o.Method, o.After.Round(time.Millisecond))
}

// Unwrap returns context.DeadlineExceeded, so that errors.Is finds it.
func (o *OverrunError) Unwrap() error { return context.DeadlineExceeded }

// Attempt runs a vendor's method in a separate goroutine and waits for it within the budget. A panic is a [PanicError]. If a method ignores its
// context, Attempt returns an [OverrunError], so the call gets an answer. If ended is not nil, the goroutine calls it with the method's context and
// error when the method has really ended. If the method ends in time, ended has run before Attempt returns, so the
// object of the call is free when the caller gets the answer.
func Attempt[T any](ctx context.Context, budget Budget, log *slog.Logger, method string, ended func(context.Context, error), work func(context.Context) (T, error)) (answer T, err error) {
	log = ofCall(ctx, log)
	began := time.Now()
	inTime, stop := context.WithDeadline(ctx, budget.Stop)
	type outcome struct {
		answer T
		err    error
	}
	outcomes := make(chan outcome, 1)
	go func() {
		result := outcome{err: &PanicError{method, "its goroutine was ended by runtime.Goexit"}}
		defer func() {
			if ended != nil {
				_, _ = Guarded(log, method, func() (struct{}, error) { ended(inTime, result.err); return struct{}{}, nil })
			}
			// Send the result before the context ends: otherwise Attempt could report an overrun of a method that has returned.
			outcomes <- result
			stop()
		}()
		result.answer, result.err = Guarded(log, method, func() (T, error) { return work(inTime) })
	}()
	select {
	case result := <-outcomes:
		return result.answer, result.err
	case <-inTime.Done():
	}
	patience := time.NewTimer(budget.Grace)
	defer patience.Stop()
	select {
	case result := <-outcomes:
		return result.answer, result.err
	case <-patience.C:
	}
	select {
	case result := <-outcomes:
		return result.answer, result.err
	default:
		after := time.Since(began)
		log.Warn("a method of the cloud ignores its context", "method", method, "ran_for", after)
		return answer, &OverrunError{method, after}
	}
}

// ofCall adds the ID of the call to the log's lines; the controller logs the same ID. Any caller may send an ID, so ofCall leaves out an ID of more
// than 64 bytes.
func ofCall(ctx context.Context, log *slog.Logger) *slog.Logger {
	if id := metadata.ValueFromIncomingContext(ctx, "ccm-call-id"); len(id) > 0 && len(id[0]) <= 64 {
		return log.With("call_id", id[0])
	}
	return log
}

// Guarded runs a vendor's method in place: a panic is logged, with its stack, and becomes a [PanicError]. An error whose own methods panic,
// such as a nil pointer, also becomes a [PanicError]. So callers can inspect the error that Guarded returns, unless its methods panic only
// at a later inspection.
func Guarded[T any](log *slog.Logger, method string, work func() (T, error)) (answer T, err error) {
	defer func() {
		if value := recover(); value != nil {
			log.Error("a method of the cloud panicked", "method", method, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			err = &PanicError{method, value}
		}
	}()
	if answer, err = work(); err != nil {
		examine(err)
	}
	return answer, err
}

// Calls the methods of an error that other code will call, and panics if one of them does.
func examine(err error) {
	_ = err.Error()
	var nobodys *examined
	_ = errors.Is(err, nobodys) || errors.As(err, &nobodys)
}

// examined is in no error, so a search for it walks through all wrapped errors.
type examined struct{}

func (*examined) Error() string { return "" }

// Holds are the objects that mutating calls work on. Each belongs to one call at a time (CORE-7). The zero value holds none.
type Holds struct {
	mutex sync.Mutex
	taken map[string]struct{}
}

// Take takes hold of an object until release is called, or says that another call holds it.
func (h *Holds) Take(object string) (release func(), free bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if _, held := h.taken[object]; held {
		return nil, false
	}
	if h.taken == nil {
		h.taken = map[string]struct{}{}
	}
	h.taken[object] = struct{}{}
	return func() {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		delete(h.taken, object)
	}, true
}
