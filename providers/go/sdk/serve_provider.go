package sdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// The minor of v1alpha1 that this SDK speaks.
const contractMinor = 0

// GetProviderInfo makes no call to the cloud (PROV-1).
func (s *session) GetProviderInfo(_ context.Context, request *contract.GetProviderInfoRequest) (*contract.GetProviderInfoResponse, error) {
	s.log.Info("a controller called GetProviderInfo", "version", request.ControllerVersion, "minor", request.ContractMinor)
	count := func(stated, otherwise int) *uint32 {
		number := uint32(orDefault(stated, otherwise))
		return &number
	}
	info, offers, maxRequest := &s.info, &s.offers, uint64(s.maxMessageBytes)
	capabilities := &contract.Capabilities{}
	if offers.lookups() {
		capabilities.Instances = &contract.InstanceCapability{
			MaxBatch: count(info.Instances.MaxBatch, defaultBatch), Listing: offers.instanceLister != nil, PowerState: info.Instances.PowerState,
			MaxInFlight: count(info.Instances.MaxInFlight, defaultInFlight),
		}
	}
	if offers.zoneLookups() {
		capabilities.Zones = &contract.ZoneCapability{}
	}
	if offers.loadBalancers != nil {
		options := &info.LoadBalancers
		balancers := &contract.LoadBalancerCapability{
			Classes: options.Classes, DefaultClass: !options.OnlyClasses, Listing: offers.balancerLister != nil, InSync: options.InSync, IgnoresNodes: options.IgnoresNodes,
			TargetScope: contract.TargetScope_TARGET_SCOPE_OWNED, MaxInFlight: count(options.MaxInFlight, defaultInFlight),
		}
		if options.AllTargets {
			balancers.TargetScope = contract.TargetScope_TARGET_SCOPE_ALL
		}
		if options.MaxTargets > 0 {
			balancers.MaxTargets = count(options.MaxTargets, 0)
		}
		balancers.TargetProjection = options.TargetProjection.to()
		for _, feature := range options.Features {
			balancers.Features = append(balancers.Features, contract.ServiceFeature(feature))
		}
		capabilities.LoadBalancers = balancers
	}
	if offers.routing() {
		capabilities.Routes = &contract.RouteCapability{
			MaxBatch: count(info.Routes.MaxBatch, defaultBatch), TracksNodeAddresses: info.Routes.TracksNodeAddresses, MaxInFlight: count(info.Routes.MaxInFlight, defaultInFlight),
		}
	}
	if offers.clusters != nil {
		capabilities.Clusters = &contract.ClusterCapability{}
	}
	if offers.volumes != nil {
		capabilities.Volumes = &contract.VolumeCapability{SourceTypes: info.Volumes.SourceTypes, MaxInFlight: count(info.Volumes.MaxInFlight, defaultInFlight)}
	}
	if offers.changes != nil {
		capabilities.Changes = &contract.ChangeCapability{}
	}
	projection := info.NodeProjection.to()
	if projection == nil {
		projection = &contract.NodeProjection{}
	}
	return &contract.GetProviderInfoResponse{
		ProviderName: info.Name, ProviderVersion: info.Version, ContractMinor: contractMinor, MinControllerMinor: info.MinControllerMinor, BootId: s.bootID,
		ProviderIdPrefixes: info.ProviderIDPrefixes, MaxRequestBytes: &maxRequest, Capabilities: capabilities, NodeProjection: projection,
	}, nil
}

// to returns nil if the projection asks for nothing.
func (p *NodeProjection) to() *contract.NodeProjection {
	if len(p.LabelKeys) == 0 && len(p.AnnotationKeys) == 0 && !p.AllLabels && len(p.Fields) == 0 {
		return nil
	}
	projection := &contract.NodeProjection{LabelKeys: p.LabelKeys, AllLabels: p.AllLabels, AnnotationKeys: p.AnnotationKeys}
	for _, field := range p.Fields {
		projection.FieldGroups = append(projection.FieldGroups, contract.NodeFieldGroup(field))
	}
	return projection
}

// Initialize sets the cluster for which the provider works from now on. If it fails, the session keeps the earlier cluster.
func (s *session) Initialize(ctx context.Context, request *contract.InitializeRequest) (*contract.InitializeResponse, error) {
	failed := func(err error) (*contract.InitializeResponse, error) {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Failed{Failed: s.failed(ctx, "Initialize", "", err)}}, nil
	}
	if err := checkCluster(request.Cluster); err != nil {
		return failed(err)
	}
	call := &Call{RPC: "Initialize", Cluster: Cluster{request.Cluster.GetName(), request.Cluster.GetOwnerId()}, PreviousOwnerIDs: request.PreviousOwnerIds, contact: &s.contact}
	initialized, err := ask(ctx, s, "Initialize", "", BudgetOf(ctx), nil, func(ctx context.Context) (*contract.Initialized, error) {
		select {
		case s.initializing <- struct{}{}:
			defer func() { <-s.initializing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		initialized, err := s.provider.Initialize(ctx, call, InitializeRequest{request.ClusterCidrs, request.KubernetesVersion, request.ReadOnly})
		if err != nil {
			return nil, err
		}
		if err := fits("the cloud scope", initialized.CloudScope, nameBytes); err != nil {
			return nil, err
		}
		if wrong := strings.IndexFunc(initialized.CloudScope, notInScope); wrong >= 0 {
			return nil, fmt.Errorf("the cloud scope %q has a character at byte %d that is not allowed; letters, digits, spaces and . _ : / , @ = + - are (PROV-9)", initialized.CloudScope, wrong)
		}
		if err := atMost("the cluster ID", initialized.ClusterID, nameBytes); err != nil {
			return nil, err
		}
		// If the call's context has ended, the session keeps the earlier cluster.
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.mutex.Lock()
		s.ready, s.readOnly = call, request.ReadOnly
		s.mutex.Unlock()
		hints := initialized.Deadlines
		return &contract.Initialized{ReadOnly: request.ReadOnly, CloudScope: initialized.CloudScope, ClusterId: optional(initialized.ClusterID), DeadlineHints: &contract.DeadlineHints{
			Lookup: durationTo(hints.Lookup), List: durationTo(hints.List), LoadBalancer: durationTo(hints.LoadBalancer), Routes: durationTo(hints.Routes),
		}}, nil
	})
	if err != nil {
		return failed(err)
	}
	s.log.Info("initialised", "cluster", call.Cluster.Name, "owner", call.Cluster.OwnerID)
	return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Initialized{Initialized: initialized}}, nil
}

// Probe answers from memory (PROV-4).
func (s *session) Probe(context.Context, *contract.ProbeRequest) (*contract.ProbeResponse, error) {
	health := Health{}
	if s.offers.health != nil {
		health = s.offers.health.Health()
	}
	states := map[HealthState]contract.ProbeState{
		HealthReady: contract.ProbeState_PROBE_STATE_READY, HealthStarting: contract.ProbeState_PROBE_STATE_STARTING,
		HealthDegraded: contract.ProbeState_PROBE_STATE_DEGRADED, HealthBroken: contract.ProbeState_PROBE_STATE_BROKEN,
	}
	response := &contract.ProbeResponse{State: states[health.State], Message: cut(health.Message), BootId: s.bootID}
	if response.State == contract.ProbeState_PROBE_STATE_UNSPECIFIED {
		s.log.Error("Health gives an unknown state", "state", int(health.State))
		response.State = contract.ProbeState_PROBE_STATE_BROKEN
		response.Message = cut(fmt.Sprintf("the provider's code gives the unknown state %d: %s", health.State, health.Message))
	}
	last := s.contact.at()
	if health.LastCloudSuccess.After(last) {
		last = health.LastCloudSuccess
	}
	if !last.IsZero() {
		response.LastCloudSuccess = timestamppb.New(last)
	}
	return response, nil
}

// How many hints may wait for the stream.
const waitingHints = 128

// Hints sends hints to the controller.
type Hints struct {
	ctx  context.Context
	log  *slog.Logger
	sent chan *contract.WatchChangesResponse
}

// Send sends one hint, with the token from which the controller resumes after a reconnect. If the
// token has more than 1,024 bytes or is not UTF-8, Send logs an error and sends no token. It waits
// while 128 hints are unsent. The end of the stream ends the wait with an error.
func (h *Hints) Send(change Change, resumeToken string) error {
	hint := &contract.WatchChangesResponse{}
	if err := change.check(); err != nil {
		h.log.Error("a hint becomes a resync", "error", err)
		change = Change{Resync: true}
	}
	switch {
	case change.Instance != nil:
		hint.Change = &contract.WatchChangesResponse_Instance{Instance: &contract.InstanceChange{ProviderId: change.Instance.ProviderID, NodeName: change.Instance.NodeName}}
	case change.LoadBalancer != nil:
		hint.Change = &contract.WatchChangesResponse_LoadBalancer{LoadBalancer: &contract.LoadBalancerChange{Namespace: change.LoadBalancer.Namespace, Name: change.LoadBalancer.Name}}
	case change.Routes:
		hint.Change = &contract.WatchChangesResponse_Routes{Routes: &contract.RoutesChange{}}
	default: // If the change sets no other field, anything may have changed.
		hint.Change = &contract.WatchChangesResponse_Resync{Resync: &contract.Resync{}}
	}
	return h.say(hint, resumeToken)
}

func (c *Change) check() error {
	switch {
	case c.Instance != nil:
		return errors.Join(atMost("the provider ID", c.Instance.ProviderID, idBytes), atMost("the Node's name", c.Instance.NodeName, nameBytes))
	case c.LoadBalancer != nil:
		return errors.Join(atMost("the namespace", c.LoadBalancer.Namespace, nameBytes), atMost("the Service's name", c.LoadBalancer.Name, nameBytes))
	default:
		return nil
	}
}

// Bookmark sends the token from which the stream reports changes. A stream should begin with a bookmark (PROV-21). Limits and waits are those of [Hints.Send].
func (h *Hints) Bookmark(resumeToken string) error {
	return h.say(&contract.WatchChangesResponse{}, resumeToken)
}

func (h *Hints) say(hint *contract.WatchChangesResponse, resumeToken string) error {
	if err := atMost("the resume token", resumeToken, idBytes); err != nil {
		h.log.Error("a resume token is left out", "error", err)
		resumeToken = ""
	}
	hint.ResumeToken = resumeToken
	select {
	case h.sent <- hint:
		return nil
	case <-h.ctx.Done():
		return BeforeWrite(h.ctx)
	}
}

// WatchChanges sends hints until the controller ends the stream, the vendor's method returns, or the server shuts down. At shutdown the stream ends
// with status OK (PROV-6).
func (s *session) WatchChanges(request *contract.WatchChangesRequest, stream grpc.ServerStreamingServer[contract.WatchChangesResponse]) error {
	failed := func(err error) error {
		return stream.Send(&contract.WatchChangesResponse{Change: &contract.WatchChangesResponse_Failed{Failed: s.failed(stream.Context(), "WatchChanges", "", err)}})
	}
	call, err := s.admit("WatchChanges", request.Cluster)
	if err != nil {
		return failed(err)
	}
	if s.offers.changes == nil {
		return failed(notOffered("WatchChanges"))
	}
	attempt, err := s.overdue.begin("WatchChanges", "")
	if err != nil {
		return failed(err)
	}
	// The headers open the stream before the first hint.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(stream.Context())
	defer stop()
	log := ofCall(ctx, s.log)
	hints := &Hints{ctx, log, make(chan *contract.WatchChangesResponse, waitingHints)}
	ended := make(chan error, 1)
	defer s.overdue.late(attempt)
	go func() {
		var err error = &PanicError{"WatchChanges", "its goroutine was ended by runtime.Goexit"}
		defer func() {
			s.overdue.end(attempt)
			ended <- err
		}()
		_, err = Guarded(log, "WatchChanges", func() (struct{}, error) {
			return struct{}{}, s.offers.changes.WatchChanges(ctx, call, request.ResumeToken, hints)
		})
	}()
	for {
		select {
		case <-s.closing:
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case hint := <-hints.sent:
			if err := stream.Send(hint); err != nil {
				return err
			}
		case err := <-ended:
			// Send the waiting hints first.
			for len(hints.sent) > 0 {
				if err := stream.Send(<-hints.sent); err != nil {
					return err
				}
			}
			if err != nil && ctx.Err() == nil {
				return failed(err)
			}
			return nil
		}
	}
}

func notOffered(service string) error {
	return Internal("this provider does not offer %s; its capabilities say so", service)
}

// Feed numbers hints and keeps the last ones for a controller that reconnects (PROV-5). Several goroutines may call its methods.
type Feed struct {
	mutex  sync.Mutex
	id     string
	kept   int
	hints  []Change
	last   int
	latest chan struct{}
}

// NewFeed returns a feed that keeps the given number of hints; 1,024 if it is zero.
func NewFeed(kept int) *Feed {
	return &Feed{id: newID(), kept: orDefault(kept, 1024), latest: make(chan struct{})}
}

// Add records a change, and wakes the watchers.
func (f *Feed) Add(change Change) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.last++
	f.hints = append(f.hints, change)
	f.hints = f.hints[max(0, len(f.hints)-f.kept):]
	close(f.latest)
	f.latest = make(chan struct{})
}

// Watch is a complete [Changes.WatchChanges] for a provider that calls [Feed.Add]. It sends a
// bookmark (PROV-21), the hints after the token, and then each new hint until the context ends. If
// it does not know the token, or no longer has all hints that are due, it sends a resync instead of
// them. A resync at the beginning also replaces the bookmark.
func (f *Feed) Watch(ctx context.Context, resumeToken string, hints *Hints) error {
	from := f.number(resumeToken)
	for begins, last := true, from; ; begins = false {
		changes, token, latest := f.after(&last)
		// If a resync is due, it comes first and serves as the bookmark.
		if begins && (len(changes) == 0 || !changes[0].Resync) {
			if err := hints.Bookmark(feedToken(f.id, from)); err != nil {
				return err
			}
		}
		for i, change := range changes {
			if err := hints.Send(change, token(i)); err != nil {
				return err
			}
		}
		select {
		case <-latest:
		case <-ctx.Done():
			return nil
		}
	}
}

// after returns the hints after the number, and sets the number to that of the last hint. If some hints are no longer kept, or the feed has not given
// the number, the result is one resync.
func (f *Feed) after(number *int) (changes []Change, token func(int) string, latest <-chan struct{}) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	oldest, first := f.last-len(f.hints)+1, *number+1
	if first < oldest || *number > f.last {
		changes, first = []Change{{Resync: true}}, f.last
	} else {
		changes = append(changes, f.hints[first-oldest:]...)
	}
	*number = f.last
	return changes, func(i int) string { return feedToken(f.id, first+i) }, f.latest
}

func feedToken(id string, number int) string { return id + "/" + strconv.Itoa(number) }

// number returns the number in a token: that of the last hint if the token is empty, -2 if this feed did not make it.
func (f *Feed) number(token string) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if token == "" {
		return f.last
	}
	id, text, _ := strings.Cut(token, "/")
	if number, err := strconv.Atoi(text); err == nil && number >= 0 && id == f.id {
		return number
	}
	return -2
}

// notInScope reports whether PROV-9 forbids a character in a scope: an operator pastes the scope into a command.
func notInScope(char rune) bool {
	switch {
	case char >= 'a' && char <= 'z', char >= 'A' && char <= 'Z', char >= '0' && char <= '9':
		return false
	}
	return !strings.ContainsRune(" ._:/,@=+-", char)
}
