// Package store has the state of the shapes' clouds in a file. So the state outlives the process, and a test can change it from outside.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// State is everything that the cloud has.
type State struct {
	Instances     map[string]*Instance     `json:"instances"`
	LoadBalancers map[string]*LoadBalancer `json:"loadBalancers"`
	// Routes are the gateways by destination.
	Routes map[string]string `json:"routes,omitempty"`
	// Firewall are the ports that the firewall admits.
	Firewall []string `json:"firewall,omitempty"`
	// Next is the number of the newest object.
	Next int `json:"next"`
	// Writes is the number of changes by the cloud's API.
	Writes int `json:"writes"`
	// Fail is the error of every operation: throttled, credentials, unavailable, precondition or invalid.
	Fail string `json:"fail,omitempty"`
	// SlowMS is how long every operation takes.
	SlowMS int `json:"slowMS,omitempty"`
	// LateMS is how long the answer to a write takes, after it was done.
	LateMS int `json:"lateMS,omitempty"`
	// PendingFor is for how many calls a new load balancer is not ready.
	PendingFor int `json:"pendingFor,omitempty"`
}

// Instance is one machine.
type Instance struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Zone    string `json:"zone"`
	Region  string `json:"region"`
	Address string `json:"address"`
	Stopped bool   `json:"stopped,omitempty"`
}

// LoadBalancer is one load balancer.
type LoadBalancer struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	IP   string `json:"ip"`
	// Rules are its rules, as text.
	Rules   []string `json:"rules"`
	Targets []string `json:"targets"`
	// Owner and Service are the marks, for a cloud that sets marks.
	Owner   string `json:"owner,omitempty"`
	Service string `json:"service,omitempty"`
	// PendingFor is for how many more calls the load balancer is not ready.
	PendingFor int `json:"pendingFor,omitempty"`
}

// Refusal is an answer of the cloud's API with an error status.
type Refusal struct {
	Status  int
	Message string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%d %s", r.Status, r.Message)
}

// The errors of an operation.
var (
	ErrThrottled   = &Refusal{http.StatusTooManyRequests, "too many requests"}
	ErrCredentials = &Refusal{http.StatusUnauthorized, "the token is not valid"}
	ErrUnavailable = &Refusal{http.StatusServiceUnavailable, "the service is not available"}
	ErrQuota       = &Refusal{http.StatusPaymentRequired, "the account's quota is used up"}
	ErrInvalid     = &Refusal{http.StatusUnprocessableEntity, "the request cannot be processed"}
	ErrNotFound    = &Refusal{http.StatusNotFound, "the resource was not found"}
)

var failures = map[string]error{
	"throttled": ErrThrottled, "credentials": ErrCredentials, "unavailable": ErrUnavailable, "precondition": ErrQuota, "invalid": ErrInvalid,
}

// Store is a state in a file. FILE.calls beside it has a line for each call that reached the cloud's API.
type Store struct{ path string }

// At returns the store in this file. The first write makes the file.
func At(path string) *Store { return &Store{path} }

// Call is one call of the cloud's API.
type Call struct {
	At time.Time `json:"at"`
	// What holds the method and the resource, such as `GET /load_balancers/lb-1`.
	What string `json:"what"`
	// Status is the status of the API's answer.
	Status int `json:"status"`
}

// Calls returns the calls of the cloud's API so far, of all processes.
func (s *Store) Calls() ([]Call, error) {
	text, err := os.ReadFile(s.path + ".calls")
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	for line := range bytes.Lines(text) {
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			return nil, fmt.Errorf("%s.calls: %w", s.path, err)
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// Read reads the cloud, as one call of its API.
func (s *Store) Read(ctx context.Context, what string, look func(*State) error) error {
	return s.operate(ctx, what, func(state *State) (bool, error) { return false, look(state) })
}

// Write changes the cloud as one call of its API does; change reports whether it changed anything.
func (s *Store) Write(ctx context.Context, what string, change func(*State) (bool, error)) error {
	return s.operate(ctx, what, func(state *State) (bool, error) {
		changed, err := change(state)
		if changed {
			state.Writes++
		}
		return changed, err
	})
}

func (s *Store) operate(ctx context.Context, what string, work func(*State) (bool, error)) error {
	slow := 0
	if err := s.Edit(func(state *State) (bool, error) {
		slow = state.SlowMS
		return false, nil
	}); err != nil {
		return err
	}
	if slow > 0 {
		select {
		case <-time.After(time.Duration(slow) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	late := 0
	err := s.Edit(func(state *State) (changed bool, err error) {
		defer func() {
			if changed {
				late = state.LateMS
			}
			if failed := s.note(what, err); err == nil {
				err = failed
			}
		}()
		if err := failures[state.Fail]; err != nil {
			return false, err
		}
		return work(state)
	})
	if late > 0 {
		select {
		case <-time.After(time.Duration(late) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// note appends a call to FILE.calls. The caller has locked the state.
func (s *Store) note(what string, err error) error {
	call := Call{At: time.Now(), What: what, Status: http.StatusOK}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		call.Status = refusal.Status
	}
	line, err := json.Marshal(call)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.path+".calls", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// Edit changes the file, but not by the cloud's API: without its delay and failure, and without a line in FILE.calls.
func (s *Store) Edit(work func(*State) (bool, error)) error {
	lock, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	state := &State{}
	text, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, state); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	if state.Instances == nil {
		state.Instances = map[string]*Instance{}
	}
	if state.LoadBalancers == nil {
		state.LoadBalancers = map[string]*LoadBalancer{}
	}
	if state.Routes == nil {
		state.Routes = map[string]string{}
	}
	changed, failed := work(state)
	if !changed {
		return failed
	}
	if text, err = json.MarshalIndent(state, "", "  "); err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(s.path), "."+filepath.Base(s.path)+".new")
	if err := errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, s.path)); err != nil {
		return err
	}
	return failed
}

// Add adds an instance, unless the name has one, and returns its ID.
func (s *Store) Add(name string) (id string, err error) {
	err = s.Edit(func(state *State) (bool, error) {
		if one := state.Instances[name]; one != nil {
			id = one.ID
			return false, nil
		}
		state.Next++
		id = fmt.Sprintf("i-%d", state.Next)
		state.Instances[name] = &Instance{
			ID: id, Type: "standard-2", Zone: "one-a", Region: "one",
			Address: fmt.Sprintf("10.0.%d.%d", state.Next/250, state.Next%250+1),
		}
		return true, nil
	})
	return id, err
}

// Change changes an existing instance.
func (s *Store) Change(name string, change func(*State, *Instance)) error {
	return s.Edit(func(state *State) (bool, error) {
		one := state.Instances[name]
		if one == nil {
			return false, fmt.Errorf("no instance %q", name)
		}
		change(state, one)
		return true, nil
	})
}

// ByID finds an instance.
func (state *State) ByID(id string) (name string, found *Instance) {
	for name, one := range state.Instances {
		if one.ID == id {
			return name, one
		}
	}
	return "", nil
}
