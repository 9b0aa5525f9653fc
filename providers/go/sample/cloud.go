package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// The cloud: a state file that providers in any language can use in turn (../../README.md describes it). In your own provider, the client of your
// cloud's API replaces this Go file. This Go file does not use gRPC: it has operations that can be slow and can fail, and a copy of the last state.

const (
	format = 1
	// How long a write waits for the lock of the state file.
	patience = 5 * time.Second
)

// The codes that make the provider DEGRADED: failures of the cloud, not of one request.
var troubles = []sdk.Code{sdk.CodeThrottled, sdk.CodeCredentials, sdk.CodeUnavailable}

// The codes that the weather file may name; any other text becomes INTERNAL.
var failures = map[string]sdk.Code{
	"INVALID": sdk.CodeInvalid, "PRECONDITION": sdk.CodePrecondition, "CONFLICT": sdk.CodeConflict, "BUSY": sdk.CodeBusy, "THROTTLED": sdk.CodeThrottled,
	"CREDENTIALS": sdk.CodeCredentials, "UNAVAILABLE": sdk.CodeUnavailable, "NOT_FOUND": sdk.CodeNotFound, "INTERNAL": sdk.CodeInternal,
}

// Instance is a machine.
type Instance struct {
	ID         string              `json:"id"`
	Name       string              `json:"name"`
	ProviderID string              `json:"provider_id"`
	Type       *string             `json:"type"`
	Zone       *string             `json:"zone"`
	Region     *string             `json:"region"`
	Addresses  []map[string]string `json:"addresses"`
	Labels     map[string]string   `json:"labels"`
	Power      string              `json:"power"`
}

// LoadBalancer is the load balancer of one Service.
type LoadBalancer struct {
	Handle    string   `json:"handle"`
	Name      string   `json:"name"`
	Owner     *Mark    `json:"owner,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Hostname  *string  `json:"hostname,omitempty"`
	Config    Config   `json:"config"`
	Targets   []string `json:"targets"`
	ReadyAtMs int64    `json:"ready_at_ms,omitempty"`
	GoneAtMs  *int64   `json:"gone_at_ms,omitempty"`
	Remnant   bool     `json:"remnant,omitempty"`
}

// Mark names the cluster and the Service for which a load balancer was made.
type Mark struct {
	OwnerID   string `json:"owner_id"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Config is what a Service asked of its load balancer.
type Config struct {
	Ports                 []string          `json:"ports,omitempty"`
	SourceRanges          []string          `json:"source_ranges,omitempty"`
	SessionAffinity       string            `json:"session_affinity"`
	ExternalTrafficPolicy string            `json:"external_traffic_policy"`
	Class                 *string           `json:"class,omitempty"`
	Annotations           map[string]string `json:"annotations,omitempty"`
}

// Route leads packets to a Node, an address or a gateway.
type Route struct {
	Name            string              `json:"name"`
	DestinationCIDR string              `json:"destination_cidr"`
	NodeName        *string             `json:"node_name,omitempty"`
	ProviderID      *string             `json:"provider_id,omitempty"`
	NextHop         *string             `json:"next_hop,omitempty"`
	Gateway         *string             `json:"gateway,omitempty"`
	NodeAddresses   []map[string]string `json:"node_addresses,omitempty"`
	OwnerID         *string             `json:"owner_id,omitempty"`
}

// State is the cloud at one moment. It is immutable: a write makes a new State.
type State struct {
	Instances     []Instance
	ByName        map[string]*Instance
	ByProviderID  map[string]*Instance
	LoadBalancers map[string]LoadBalancer
	Routes        map[string]Route
	LastNumber    int64
	// The cloud's time minus the system's, in milliseconds.
	clockOffset int64
	// The instances as text of the file: a write keeps them unchanged.
	instancesText json.RawMessage
}

// NowMs returns the cloud's time.
func (s *State) NowMs() int64 { return time.Now().UnixMilli() + s.clockOffset }

// Living returns the load balancers in the order of their handles, without those whose deletion is over.
func (s *State) Living() []LoadBalancer {
	living := []LoadBalancer{}
	for _, handle := range slices.Sorted(maps.Keys(s.LoadBalancers)) {
		if lb := s.LoadBalancers[handle]; lb.GoneAtMs == nil || *lb.GoneAtMs > s.NowMs() {
			living = append(living, lb)
		}
	}
	return living
}

// Without returns the state without the load balancer that has this handle.
func (s *State) Without(handle string) *State {
	rest := *s
	rest.LoadBalancers = maps.Clone(s.LoadBalancers)
	delete(rest.LoadBalancers, handle)
	return &rest
}

// Write is one write. Its function Change changes copies of the maps.
type Write struct {
	Line       string
	Change     func(loadBalancers map[string]LoadBalancer, routes map[string]Route)
	LastNumber int64
}

// Cloud is the client of the cloud.
type Cloud struct {
	path string
	// Called when a read finds a state that another process wrote.
	OnForeignChange func(before, after *State)
	// Admits one writer of this process at a time. It is a channel, so that a cancelled call stops waiting.
	turn chan struct{}

	mutex       sync.Mutex
	state       *State
	file        os.FileInfo
	learnedAt   time.Time
	lastSuccess time.Time
	trouble     string
}

// Open makes a new cloud if no file exists. A file that is missing later is an error: it does not mean that no instances exist (INST-1).
func Open(path string) (*Cloud, error) {
	c := &Cloud{path: path, turn: make(chan struct{}, 1), state: &State{instancesText: json.RawMessage("[]")}}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return c, err
	}
	return c, c.save(c.state, &Write{Change: func(map[string]LoadBalancer, map[string]Route) {}})
}

// Health returns when the cloud last answered, and the text of the last failure with one of the codes in troubles; empty if the cloud has answered since. It
// reads only memory.
func (c *Cloud) Health() (lastSuccess time.Time, trouble string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.lastSuccess, c.trouble
}

// Read returns the state. If the last one is older than maxAge, it reads the cloud.
func (c *Cloud) Read(ctx context.Context, maxAge time.Duration) (*State, error) {
	c.mutex.Lock()
	state, age := c.state, time.Since(c.learnedAt)
	c.mutex.Unlock()
	if maxAge > 0 && age <= maxAge {
		return state, nil
	}
	err := c.operation(ctx, func() (err error) {
		state, err = c.Look()
		return err
	})
	return state, err
}

// Write is one operation that may write: decide gets the present state and returns the write, or nil.
func (c *Cloud) Write(ctx context.Context, decide func(*State) (*Write, error)) error {
	return c.operation(ctx, func() error {
		waiting, stop := context.WithTimeout(ctx, patience)
		defer stop()
		unlock, err := c.lock(waiting)
		if err != nil {
			if ctx.Err() == nil && waiting.Err() != nil {
				return sdk.Unavailable("another process holds %s.lock for longer than %s", c.path, patience)
			}
			return err
		}
		defer unlock()
		state, err := c.Look()
		if err != nil {
			return err
		}
		write, err := decide(state)
		if err != nil || write == nil {
			return err
		}
		// The last check before the write: a cancelled call ends here (CORE-8).
		if err := sdk.BeforeWrite(ctx); err != nil {
			return err
		}
		return c.save(state, write)
	})
}

// Catalogue has the clusters and disks that the cloud knows; no provider writes them.
type Catalogue struct {
	Clusters map[string]string            `json:"clusters"`
	Volumes  map[string]map[string]string `json:"volumes"`
}

// Catalogue reads the catalogue as one operation.
func (c *Cloud) Catalogue(ctx context.Context) (catalogue Catalogue, err error) {
	err = c.operation(ctx, func() error { return c.json(".catalogue.json", &catalogue) })
	return catalogue, err
}

// operation applies the weather file (a delay, a failure) to an operation. The delay is outside of all locks, so no other operation waits for it.
func (c *Cloud) operation(ctx context.Context, work func() error) error {
	err := func() error {
		var weather struct {
			Fail   *string `json:"fail"`
			SlowMs int64   `json:"slow_ms"`
		}
		if err := c.json(".weather.json", &weather); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(weather.SlowMs) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if weather.Fail != nil {
			code, known := failures[*weather.Fail]
			if !known {
				code = sdk.CodeInternal
			}
			failure := sdk.Fail(code, "the cloud is set to answer %s to every operation", *weather.Fail)
			if code == sdk.CodeThrottled {
				failure.RetryAfter = time.Second
			}
			return failure
		}
		return work()
	}()
	if err != nil && ctx.Err() != nil {
		return err // The call ended, whatever the cloud does.
	}
	failure := (*sdk.Failure)(nil)
	switch isFailure := errors.As(err, &failure); {
	case isFailure && slices.Contains(troubles, failure.Code):
		c.note(failure.Error())
	case err == nil || isFailure: // The cloud answered, also if it refused the request.
		c.note("")
	}
	return err
}

func (c *Cloud) note(trouble string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.trouble = trouble; trouble == "" {
		c.lastSuccess = time.Now()
	}
}

// lock makes the caller the only writer of the cloud, in this process and among all processes.
func (c *Cloud) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	file, err := os.OpenFile(c.path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	for err == nil {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close(); <-c.turn }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
			err = nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if file != nil {
		file.Close()
	}
	<-c.turn
	if ctx.Err() == nil {
		err = sdk.Unavailable("%s.lock cannot be locked: %v", c.path, err)
	}
	return nil, err
}

// Look returns the current state. It reads the file the first time, and later only if it is not the one in memory. In that case it calls
// OnForeignChange.
func (c *Cloud) Look() (*State, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	info, err := os.Stat(c.path)
	if err == nil && !same(info, c.file) {
		err = c.parse(info)
	}
	if err != nil {
		return nil, sdk.Unavailable("%s: the state file cannot be read: %v", c.path, err)
	}
	c.learnedAt = time.Now()
	return c.state, nil
}

func same(one, other os.FileInfo) bool {
	return other != nil && os.SameFile(one, other) && one.ModTime().Equal(other.ModTime()) && one.Size() == other.Size()
}

func (c *Cloud) parse(info os.FileInfo) error {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return err
	}
	var content struct {
		Format        int             `json:"format"`
		NowMs         int64           `json:"now_ms"`
		SavedAtUnixMs int64           `json:"saved_at_unix_ms"`
		LastNumber    int64           `json:"last_number"`
		Instances     json.RawMessage `json:"instances"`
		LoadBalancers []LoadBalancer  `json:"load_balancers"`
		Routes        []Route         `json:"routes"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&content); err != nil {
		return err
	}
	if content.Format != format {
		return fmt.Errorf("format %d is not %d", content.Format, format)
	}
	after := &State{
		ByName:        map[string]*Instance{},
		ByProviderID:  map[string]*Instance{},
		LoadBalancers: map[string]LoadBalancer{},
		Routes:        map[string]Route{},
		LastNumber:    content.LastNumber,
		clockOffset:   content.NowMs - content.SavedAtUnixMs,
		instancesText: content.Instances,
	}
	if err := json.Unmarshal(content.Instances, &after.Instances); err != nil {
		return err
	}
	for i := range after.Instances {
		instance := &after.Instances[i]
		after.ByName[instance.Name], after.ByProviderID[instance.ProviderID] = instance, instance
	}
	for _, lb := range content.LoadBalancers {
		after.LoadBalancers[lb.Handle] = lb
	}
	for _, route := range content.Routes {
		after.Routes[route.Name] = route
	}
	before, first := c.state, c.file == nil
	c.state, c.file = after, info
	if !first && c.OnForeignChange != nil {
		c.OnForeignChange(before, after)
	}
	return nil
}

// save replaces the file by a rename. So after a kill at any time the file is whole, with the old or the new state.
func (c *Cloud) save(before *State, write *Write) error {
	after := *before
	after.LoadBalancers, after.Routes = map[string]LoadBalancer{}, map[string]Route{}
	for _, lb := range before.Living() {
		after.LoadBalancers[lb.Handle] = lb
	}
	maps.Copy(after.Routes, before.Routes)
	write.Change(after.LoadBalancers, after.Routes)
	after.LastNumber = max(before.LastNumber, write.LastNumber)
	now := time.Now().UnixMilli()
	text, err := json.Marshal(map[string]any{
		"format": format, "now_ms": max(0, now+before.clockOffset), "saved_at_unix_ms": now, "last_number": after.LastNumber,
		"instances": before.instancesText, "load_balancers": sorted(after.LoadBalancers), "routes": sorted(after.Routes),
	})
	if err == nil {
		err = os.WriteFile(c.path+".new", text, 0o644)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(c.path + ".new")
	}
	if err == nil {
		err = os.Rename(c.path+".new", c.path)
	}
	if err == nil && write.Line != "" {
		err = appendLine(c.path+".writes", write.Line)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err != nil {
		return sdk.Unavailable("%s: the state file cannot be written: %v", c.path, err)
	}
	if c.file != nil {
		c.state, c.file = &after, info
	}
	return nil
}

func sorted[T any](objects map[string]T) []T {
	list := []T{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		list = append(list, objects[key])
	}
	return list
}

func appendLine(path, line string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(line + "\n")
	return errors.Join(err, file.Close())
}

func (c *Cloud) json(suffix string, content any) error {
	text, err := os.ReadFile(c.path + suffix)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, content)
	}
	if err != nil {
		return sdk.Unavailable("%s%s cannot be read: %v", c.path, suffix, err)
	}
	return nil
}
