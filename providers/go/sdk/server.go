package sdk

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Server serves one provider on one Unix socket, with health (grpc.health.v1) and reflection. Its zero value with a Provider is what most need.
//
// The socket (CORE-2): a directory that is missing is made with mode 0750; the socket has mode 0660 from the first moment; symbolic links in its path are refused; a stale socket is
// replaced only when nobody answers on it, and anything else in its place is left alone.
//
// The end (CORE-17): health says NOT_SERVING, the socket's file goes, no connection is accepted any more and those that are open get GOAWAY, streams of hints end with status OK (PROV-6),
// and calls in flight may finish within Drain. What then still runs is cancelled. [Serve] is the same for services that are no [Provider].
type Server struct {
	// Provider is what is served.
	Provider Provider
	// Endpoint is where: unix:// and an absolute path of at most 107 bytes, in a directory of its own. [DefaultEndpoint] where empty.
	Endpoint string
	// PeerUID is the only user beside our own whose connections are accepted (CORE-3); nil: everybody whom the socket's mode lets in.
	PeerUID *int
	// SocketGroup is the group of the socket, and of its directory where that is made; nil: our primary group.
	SocketGroup *int
	// Drain is how long calls in flight may take after the end begins; [DefaultDrain] where zero.
	Drain time.Duration
	// MaxMessageBytes is the largest request that is accepted and answer that is sent; [DefaultMaxMessageBytes] where zero, at least 64 KiB. The controller is told.
	MaxMessageBytes int
	// Logger is where faults, refusals and the life of the process go; slog's default where nil.
	Logger *slog.Logger
	// Observe is told of every call that has ended, for metrics; it must not block.
	Observe func(Observation)
	// Register serves further gRPC services on the same socket. Code in them is guarded against panics, and their streams end with the server.
	Register func(grpc.ServiceRegistrar)
	// Options are further options of gRPC, such as interceptors and stats handlers.
	Options []grpc.ServerOption
}

// Observation is what [Server.Observe] is told of a call.
type Observation struct {
	// Method is the full name, such as /cloudprovider.v1alpha1.InstanceService/LookupInstances.
	Method string
	// Took is how long it took.
	Took time.Duration
	// Outcome is OK, PENDING, the code of a failure of the whole such as THROTTLED, or the gRPC status such as Canceled. A stream that was sent to its end is OK.
	Outcome string
}

// Run serves until SIGTERM or SIGINT, then ends as described above.
func (s *Server) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return s.Serve(ctx)
}

// Serve serves until the context ends, then ends as described above.
func (s *Server) Serve(ctx context.Context) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	return Serve(ctx, s.register(session), s.options(session))
}

// ServeListener is [Server.Serve] on a listener of the caller's, for tests in memory. The socket and who may connect are then the caller's.
func (s *Server) ServeListener(ctx context.Context, listener net.Listener) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	options := s.options(session)
	return options.serve(ctx, s.register(session), listener, func() {})
}

func newID() string { return rand.Text() }

func (s *Server) session() (*session, error) {
	if s.Provider == nil {
		return nil, errors.New("the server has no Provider; right would be sdk.Server{Provider: …}")
	}
	info := s.Provider.Info()
	offers := offersOf(s.Provider, info.Without)
	if err := info.check(offers.lookups()); err != nil {
		return nil, err
	}
	options := ServeOptions{Logger: s.Logger, MaxMessageBytes: s.MaxMessageBytes}
	return &session{
		provider: s.Provider, info: info, offers: offers, log: options.log(), bootID: newID(), initializing: make(chan struct{}, 1), closing: make(chan struct{}),
		maxMessageBytes: options.maxMessageBytes(),
	}, nil
}

func (s *Server) options(session *session) ServeOptions {
	return ServeOptions{
		Endpoint: s.Endpoint, PeerUID: s.PeerUID, SocketGroup: s.SocketGroup, Drain: s.Drain, MaxMessageBytes: s.MaxMessageBytes, Logger: s.Logger, Observe: s.Observe,
		Closing: func() { close(session.closing) }, Options: s.Options,
	}
}

// A service that the provider does not have is not there at all, as its missing capability says (CORE-5).
func (s *Server) register(session *session) func(grpc.ServiceRegistrar) {
	return func(server grpc.ServiceRegistrar) {
		contract.RegisterProviderServiceServer(server, session)
		if session.offers.lookups() {
			contract.RegisterInstanceServiceServer(server, session)
		}
		if session.offers.zoneLookups() {
			contract.RegisterZoneServiceServer(server, session)
		}
		if session.offers.loadBalancers != nil {
			contract.RegisterLoadBalancerServiceServer(server, session)
		}
		if session.offers.routing() {
			contract.RegisterRouteServiceServer(server, session)
		}
		if session.offers.clusters != nil {
			contract.RegisterClusterServiceServer(server, session)
		}
		if session.offers.volumes != nil {
			contract.RegisterVolumeServiceServer(server, session)
		}
		if s.Register != nil {
			s.Register(server)
		}
	}
}
