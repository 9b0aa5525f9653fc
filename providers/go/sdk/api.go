package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Common parts of providers for clouds with a web API.

// Token is the secret for calls of an API.
type Token struct {
	// File is the path of the token's file. Each Read reads it, so a rotated token takes effect at the next Read. Without File the token is Value.
	File, Value string
}

// Read returns the token, or a [Credentials] failure if there is no valid one.
func (t Token) Read() (string, error) {
	token, where := t.Value, "the environment"
	if t.File != "" {
		text, err := os.ReadFile(t.File)
		if err != nil {
			return "", Credentials("the token's file cannot be read: %w", err).Because("TokenMissing")
		}
		token, where = strings.TrimSpace(string(text)), "the file "+t.File
	}
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", Credentials("%s holds no token; right would be the token and nothing else", where).Because("TokenMissing")
	}
	return token, nil
}

// Trouble keeps the last error that shows a fault of a cloud's API, until a call shows that the API works. Health reports it from memory (PROV-4).
// The zero value has no error.
type Trouble struct {
	mutex sync.Mutex
	text  string
}

// Done records the outcome of a call of the API for the server, which reports when the cloud last
// answered with success, and for [Trouble.Health]. It returns the failure as an error, which is nil
// if the failure is nil.
func (t *Trouble) Done(ctx context.Context, call *Call, failure *Failure) error {
	if failure == nil {
		call.CloudAnswered()
		t.note("")
		return nil
	}
	switch failure.Code {
	case CodeCredentials, CodeThrottled, CodeUnavailable, CodeInternal:
		if ctx.Err() == nil { // After the context's end a failure shows no fault of the cloud.
			t.note(failure.Error())
		}
	default:
		t.note("")
	}
	return failure
}

func (t *Trouble) note(text string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = text
}

// Health is DEGRADED after a call that failed with CREDENTIALS, THROTTLED, UNAVAILABLE or INTERNAL
// before its context ended, until a call succeeds or fails with another code.
func (t *Trouble) Health() Health {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.text != "" {
		return Health{State: HealthDegraded, Message: t.text}
	}
	return Health{}
}

// Page is one page of a listing.
type Page[T any] struct {
	// Items are its objects.
	Items []T
	// Total is the number of objects in all pages, as the API states it; negative if the API states none. If it is negative, [Pages] fails.
	Total int
	// Last is true for the last page.
	Last bool
}

// Pages gets all pages of a listing; their numbers begin with 1. A change between two pages can
// hide an existing object: a removal may move a later object into a page that was read already. So
// Pages reads the listing again if its pages state different totals, or if it has read another
// number of objects than the total. After three such readings it fails with [Unavailable].
func Pages[T any, K comparable](what string, key func(T) K, page func(number int) (Page[T], error)) ([]T, error) {
	for range 3 {
		all, seen, total, changed := []T{}, map[K]bool{}, -1, false
		for number := 1; ; number++ {
			got, err := page(number)
			if err != nil {
				return nil, err
			}
			before := len(all)
			for _, item := range got.Items {
				if !seen[key(item)] {
					seen[key(item)] = true
					all = append(all, item)
				}
			}
			changed = changed || number > 1 && got.Total != total
			// A page without new objects ends the listing too, because an API without pages answers each request with its first page.
			if total = got.Total; got.Last || len(all) == before {
				break
			}
		}
		if total < 0 {
			return nil, Internal("%s: the answer does not say how many there are", what)
		}
		if !changed && len(all) == total {
			return all, nil
		}
	}
	return nil, Unavailable("%s: they changed while they were listed, three times", what).Because("ListChanged")
}

const (
	// How long one list may take. A lookup that waits for it has 42 s: 70 % of its deadline of 60 s.
	listTimeout = 40 * time.Second
	// How long a list waits for further lookups before it starts.
	gatherFor = 30 * time.Millisecond
)

// Shared reads one list for all lookups that wait when the list starts. A lookup that comes while a list runs waits for the next list: its answer must
// not be older than the lookup, unless the lookup states a maximum age (INST-5).
type Shared[T any] struct {
	// Get reads the list. Its context ends after 40 s, and not when a lookup ends. The call is that of the first lookup that waits for this list.
	Get func(ctx context.Context, call *Call) (T, error)

	mutex   sync.Mutex
	running bool
	next    *flight[T]
	last    *flight[T]
}

type flight[T any] struct {
	done   chan struct{}
	began  time.Time
	call   *Call
	answer T
	err    error
}

// List returns the last list if its reading began less than maxAge ago, else the next list.
func (s *Shared[T]) List(ctx context.Context, call *Call, maxAge time.Duration) (answer T, err error) {
	s.mutex.Lock()
	if last := s.last; last != nil && time.Since(last.began) < maxAge {
		s.mutex.Unlock()
		return last.answer, nil
	}
	if s.next == nil {
		s.next = &flight[T]{done: make(chan struct{}), call: call}
		if !s.running {
			s.running = true
			go s.run()
		}
	}
	flight := s.next
	s.mutex.Unlock()
	select {
	case <-flight.done:
		return flight.answer, flight.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

func (s *Shared[T]) run() {
	ended := false
	defer func() {
		// runtime.Goexit in Get ended this goroutine; another one must read the lists of later lookups.
		if !ended {
			go s.run()
		}
	}()
	for {
		time.Sleep(gatherFor)
		s.mutex.Lock()
		flight := s.next
		s.next = nil
		if s.running = flight != nil; flight == nil {
			ended = true
			s.mutex.Unlock()
			return
		}
		s.mutex.Unlock()
		s.fly(flight)
	}
}

func (s *Shared[T]) fly(flight *flight[T]) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	defer close(flight.done)
	defer func() {
		if fault := recover(); fault != nil {
			flight.err = Internal("a list could not be read: %v", fault)
		}
	}()
	// runtime.Goexit ends this goroutine without a panic. Without this failure the list would read as complete and empty (INST-1).
	flight.err = Internal("a list could not be read: its goroutine was ended by runtime.Goexit")
	flight.began = time.Now()
	if flight.answer, flight.err = s.Get(ctx, flight.call); flight.err == nil {
		s.mutex.Lock()
		s.last = flight
		s.mutex.Unlock()
	}
}

// How many Nodes [Each] looks up at once.
const askedAtOnce = 8

// Each looks up each Node separately, at most 8 at once. After a THROTTLED, CREDENTIALS or UNAVAILABLE failure it starts no further lookups: the
// remaining Nodes get that failure. If ask panics, Each panics too, in the caller's goroutine, so the panic fails only this call.
func Each(nodes []Node, answers Answers[Instance], ask func(Node) (Instance, error)) {
	var mutex sync.Mutex
	var all sync.WaitGroup
	var refused error
	var panicked string
	turns := make(chan struct{}, askedAtOnce)
	for _, node := range nodes {
		turns <- struct{}{}
		mutex.Lock()
		if refused != nil {
			answers.Set(node.Name, Instance{}, refused)
			mutex.Unlock()
			<-turns
			continue
		}
		mutex.Unlock()
		all.Go(func() {
			defer func() { <-turns }()
			defer func() {
				if value := recover(); value != nil {
					mutex.Lock()
					defer mutex.Unlock()
					panicked = fmt.Sprintf("%v\n%s", value, debug.Stack())
				}
			}()
			instance, err := ask(node)
			mutex.Lock()
			defer mutex.Unlock()
			if err != nil {
				instance = Instance{}
			}
			answers.Set(node.Name, instance, err)
			var failure *Failure
			if errors.As(err, &failure) && (failure.Code == CodeThrottled || failure.Code == CodeCredentials || failure.Code == CodeUnavailable) {
				refused = err
			}
		})
	}
	all.Wait()
	if panicked != "" {
		panic(panicked)
	}
}
