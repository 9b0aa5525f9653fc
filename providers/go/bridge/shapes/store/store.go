// Package store is the cloud behind the clouds of the shapes: a file, so that it outlives the process and a test can change it from outside.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// State is everything that the cloud has.
type State struct {
	Instances     map[string]*Instance     `json:"instances"`
	LoadBalancers map[string]*LoadBalancer `json:"loadBalancers"`
	// Next numbers what is made.
	Next int `json:"next"`
	// Writes counts what ever changed the cloud.
	Writes int `json:"writes"`
	// Fail is what every operation fails with: throttled, credentials, unavailable or precondition.
	Fail string `json:"fail,omitempty"`
	// SlowMS is how long every operation takes.
	SlowMS int `json:"slowMS,omitempty"`
	// PendingFor is how many times a new load balancer is not ready yet.
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
	// Rules are what it does, as text.
	Rules   []string `json:"rules"`
	Targets []string `json:"targets"`
	// PendingFor is how many more times it is not ready.
	PendingFor int `json:"pendingFor,omitempty"`
}

// What an operation fails with.
var (
	ErrThrottled   = errors.New("too many requests")
	ErrCredentials = errors.New("the token is not valid")
	ErrUnavailable = errors.New("the service is not available")
	ErrQuota       = errors.New("the account's quota is used up")
)

var failures = map[string]error{"throttled": ErrThrottled, "credentials": ErrCredentials, "unavailable": ErrUnavailable, "precondition": ErrQuota}

// Store is a state in a file.
type Store struct{ path string }

// At is the store in this file, which is made at the first write.
func At(path string) *Store { return &Store{path} }

// Read looks at the cloud as one operation of its API does.
func (s *Store) Read(ctx context.Context, look func(*State) error) error {
	return s.operate(ctx, func(state *State) (bool, error) { return false, look(state) })
}

// Write changes the cloud as one operation of its API does; change tells whether it changed anything.
func (s *Store) Write(ctx context.Context, change func(*State) (bool, error)) error {
	return s.operate(ctx, func(state *State) (bool, error) {
		changed, err := change(state)
		if changed {
			state.Writes++
		}
		return changed, err
	})
}

func (s *Store) operate(ctx context.Context, work func(*State) (bool, error)) error {
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
	return s.Edit(func(state *State) (bool, error) {
		if err := failures[state.Fail]; err != nil {
			return false, err
		}
		return work(state)
	})
}

// Edit changes the file from outside of the cloud's API: neither slow nor failing, and not counted.
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

// Add adds an instance and returns its ID.
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

// Change changes an instance, which must be there.
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
