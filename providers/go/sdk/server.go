package sdk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// Server serves one provider on one Unix socket, with health (grpc.health.v1) and reflection. Only the field Provider is required.
//
// The socket (CORE-2): the server makes a missing directory with mode 0750. The socket has mode 0660 before its name exists. The server refuses
// symbolic links in its path. It replaces an existing socket only if no process listens on it. It refuses to start if the file at the socket's path
// is no socket.
//
// The shutdown (CORE-17): health reports NOT_SERVING, and the server removes the socket's file. It accepts no more connections, and sends GOAWAY on the
// open ones. Streams of hints end with status OK (PROV-6), and calls in flight may finish within Drain. Then the server cancels those that still run.
// [Serve] is the same for services that are no [Provider].
type Server struct {
	// Provider is the served provider.
	Provider Provider
	// Endpoint is the address: unix:// and an absolute path of at most 107 bytes, in a separate directory. [DefaultEndpoint] if empty.
	Endpoint string
	// PeerUID is the only user beside the process's own whose connections the server accepts (CORE-3); nil: all users that the socket's mode admits.
	PeerUID *int
	// SocketGroup is the group of the socket, and of the directories that the server makes; for nil
	// see [ServeOptions.SocketGroup].
	SocketGroup *int
	// Drain is how long calls in flight may take after the shutdown begins; [DefaultDrain] if zero.
	Drain time.Duration
	// MaxMessageBytes limits the requests that the server accepts and the answers that it sends; [DefaultMaxMessageBytes] if zero, at least 64 KiB.
	// GetProviderInfo states it to the controller.
	MaxMessageBytes int
	// Logger gets faults, refusals and the start and end of the process; slog's default if nil.
	Logger *slog.Logger
	// Observe gets each call that reached a handler when the call has ended, for metrics. It must not block.
	Observe func(Observation)
	// Register serves further gRPC services on the same socket. The server catches the panics of their handlers, and ends their streams at shutdown.
	Register func(grpc.ServiceRegistrar)
	// Options are further options of gRPC, such as interceptors and stats handlers.
	Options []grpc.ServerOption
}

// Observation describes a call to [Server.Observe].
type Observation struct {
	// Method is the full name, such as /cloudprovider.v1alpha1.InstanceService/LookupInstances.
	Method string
	// Took is how long the call took.
	Took time.Duration
	// Outcome is OK, PENDING, the code of a failure of the whole call such as THROTTLED, or the gRPC status such as Canceled. A stream with the status OK
	// is OK, also if it ended with a failure.
	Outcome string
}

// Run serves until SIGTERM or SIGINT, then shuts down as [Server] describes.
func (s *Server) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return s.Serve(ctx)
}

// Serve serves until the context ends, then shuts down as [Server] describes.
func (s *Server) Serve(ctx context.Context) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	return Serve(ctx, s.register(session), s.options(session))
}

// ServeListener is [Server.Serve] on the caller's listener, for tests in memory. It ignores Endpoint, PeerUID and SocketGroup.
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
	if offers.nothing() {
		return nil, fmt.Errorf("the provider (%T) offers no service with Without: %q; right would be the methods of sdk.Instances or of another service, and a Without that does not name it", s.Provider, info.Without)
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

// The server does not register a service that the provider lacks, in accordance with the capabilities (CORE-5).
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
