package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/klog/v2"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const (
	// The largest message of an answer that the contract allows, in bytes.
	largestAnswer = 16 << 20
	// The largest request, in bytes, if the provider states no limit.
	largestRequest = 4 << 20
	// The minor version of the contract that the adapter speaks.
	contractMinor = 0
	// The adapter's own version, for the provider's log.
	version = "0.1.0"
	// The pause before the adapter repeats a failed Initialize.
	initializeAgain = time.Second
)

// session is the connection to the provider. gRPC dials again by itself. On a new connection the
// session calls Initialize before the next call.
type session struct {
	connection *grpc.ClientConn
	// The number of connections so far.
	dialled atomic.Uint64
	// The largest request, in bytes.
	requestLimit int

	// Protects the following fields.
	lock chan struct{}
	// The request of Initialize; nil until this process leads.
	request *contract.InitializeRequest
	// The number of the connection on which Initialize succeeded; 0 for none.
	initialized uint64
	// The boot ID of the process that last answered Initialize, and the cloud scope, which must not
	// change.
	bootID, scope string
	hints         *contract.DeadlineHints
}

func dial(endpoint string) (*session, error) {
	s := &session{lock: make(chan struct{}, 1), requestLimit: largestRequest}
	// Windows of a fixed size: otherwise gRPC measures the bandwidth with HTTP/2 pings, which the
	// contract does not have.
	const window = 1 << 20
	connection, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestAnswer)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var dialer net.Dialer
			connection, err := dialer.DialContext(ctx, "unix", strings.TrimPrefix(endpoint, unixScheme))
			if err == nil {
				s.dialled.Add(1)
			}
			return connection, err
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	s.connection = connection
	return s, nil
}

// providerInfo calls GetProviderInfo. It waits for a provider that does not answer yet.
func (s *session) providerInfo(ctx context.Context) (*contract.GetProviderInfoResponse, error) {
	provider := contract.NewProviderServiceClient(s.connection)
	request := &contract.GetProviderInfoRequest{ControllerVersion: version, ContractMinor: contractMinor}
	info, err := provider.GetProviderInfo(ctx, request, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	if least := info.GetMinControllerMinor(); least > contractMinor {
		return nil, fmt.Errorf("provider %q version %q needs a controller that speaks minor %d or higher of the contract v1alpha1; this one speaks minor %d",
			info.GetProviderName(), info.GetProviderVersion(), least, contractMinor)
	}
	if info.GetProviderName() == "" || info.GetBootId() == "" {
		return nil, errors.New("the provider does not state both its name and its boot_id")
	}
	return info, nil
}

func (s *session) takeLimits(info *contract.GetProviderInfoResponse) {
	if info.MaxRequestBytes != nil {
		s.requestLimit = int(min(info.GetMaxRequestBytes(), 1<<30))
	}
}

// acquire takes the lock, or gives up when the context ends.
func (s *session) acquire(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) release() { <-s.lock }

func (s *session) setRequest(request *contract.InitializeRequest) {
	s.lock <- struct{}{}
	defer s.release()
	s.request = request
}

// initializedWithin repeats Initialize until it succeeds or the context ends.
func (s *session) initializedWithin(ctx context.Context) error {
	for {
		_, err := s.ready(ctx)
		if err == nil {
			return nil
		}
		klog.InfoS("The provider is not initialised yet", "err", err)
		select {
		case <-time.After(initializeAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// ready returns the cluster that a call must name. If Initialize has not succeeded on the present
// connection, ready calls GetProviderInfo and Initialize first.
func (s *session) ready(ctx context.Context) (*contract.ClusterRef, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	defer s.release()
	if s.request == nil {
		return nil, errors.New("this process does not lead yet")
	}
	if s.initialized != 0 && s.initialized == s.dialled.Load() {
		return s.request.GetCluster(), nil
	}

	infoContext, cancel := context.WithTimeout(ctx, infoDeadline)
	defer cancel()
	info, err := s.providerInfo(infoContext)
	if err != nil {
		return nil, err
	}
	number := s.dialled.Load()
	if s.bootID != "" && s.bootID != info.GetBootId() {
		klog.InfoS("Another process of the provider answers", "provider", info.GetProviderName(), "version", info.GetProviderVersion())
	}
	initializeContext, cancel := context.WithTimeout(ctx, initializeDeadline)
	defer cancel()
	answer, err := contract.NewProviderServiceClient(s.connection).Initialize(initializeContext, s.request)
	if err != nil {
		return nil, err
	}
	if err := failure(answer.GetFailed()); err != nil {
		return nil, err
	}
	scope := answer.GetInitialized().GetCloudScope()
	if scope == "" {
		return nil, errors.New("the provider answered Initialize without a cloud_scope")
	}
	if s.scope != "" && s.scope != scope {
		return nil, fmt.Errorf("the provider reaches %q now, and reached %q when this process began: nothing is made or deleted; restart this process to accept it", scope, s.scope)
	}
	s.bootID, s.scope, s.hints = info.GetBootId(), scope, answer.GetInitialized().GetDeadlineHints()
	s.initialized = number
	return s.request.GetCluster(), nil
}

// forget makes the next call initialise the provider again.
func (s *session) forget(ctx context.Context) error {
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	s.initialized = 0
	return nil
}

// deadline returns the contract's deadline, or the provider's hint if that is longer, at most
// longestDeadline.
func (s *session) deadline(ctx context.Context, least time.Duration, hint func(*contract.DeadlineHints) *durationpb.Duration) time.Duration {
	if hint == nil || s.acquire(ctx) != nil {
		return least
	}
	defer s.release()
	return max(least, min(hint(s.hints).AsDuration(), longestDeadline))
}

// kind has the places, the deadline and the hint for one kind of call.
type kind struct {
	places   chan struct{}
	deadline time.Duration
	hint     func(*contract.DeadlineHints) *durationpb.Duration
}

// call makes one call within the limit of its service and under its deadline, to an initialised
// provider. After NOT_INITIALIZED it initialises the provider and repeats the call once.
func call[Answer any](
	ctx context.Context,
	s *session,
	kind kind,
	do func(context.Context, *contract.ClusterRef, ...grpc.CallOption) (Answer, error),
	failed func(Answer) *contract.Failure,
) (Answer, error) {
	var none Answer
	done, err := limited(ctx, kind.places)
	if err != nil {
		return none, err
	}
	defer done()
	for again := true; ; again = false {
		cluster, err := s.ready(ctx)
		if err != nil {
			return none, fmt.Errorf("the provider is not ready: %w", err)
		}
		bounded, cancel := context.WithTimeout(ctx, s.deadline(ctx, kind.deadline, kind.hint))
		answer, err := do(bounded, cluster, grpc.MaxCallSendMsgSize(s.requestLimit))
		cancel()
		if err != nil {
			return none, err
		}
		found := failed(answer)
		if again && found.GetCode() == contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED {
			if err := s.forget(ctx); err != nil {
				return none, err
			}
			continue
		}
		return answer, failure(found)
	}
}
