package sdk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

const (
	// Requests and answers of up to 16 MiB are accepted and sent unless set.
	defaultMessageBytes = 16 * 1024 * 1024
	leastMessageBytes   = 64 * 1024
	// How long calls in flight may take after SIGTERM unless set (CORE-17).
	defaultDrain = 20 * time.Second
	// A connection that never speaks HTTP/2 keeps the process no longer than this.
	handshake = 5 * time.Second
)

// Server serves one provider on one Unix socket, with health (grpc.health.v1) and reflection. Its zero value with a Provider is what most need.
//
// The socket (CORE-2): a directory that is missing is made with mode 0750; the socket has mode 0660 from the first moment; symbolic links in its path are refused; a stale socket is
// replaced only when nobody answers on it, and anything else in its place is left alone.
//
// The end (CORE-17): health says NOT_SERVING, the socket's file goes, streams of hints end with status OK (PROV-6), no connection is accepted any more, and calls in flight may
// finish within Drain. What then still runs is cancelled.
type Server struct {
	// Provider is what is served.
	Provider Provider
	// Endpoint is where: unix:// and an absolute path of at most 107 bytes, in a directory of its own. [DefaultEndpoint] where empty.
	Endpoint string
	// PeerUID is the only user beside our own whose connections are accepted (CORE-3); nil: everybody whom the socket's mode lets in.
	PeerUID *int
	// SocketGroup is the group of the socket, and of its directory where that is made; nil: our primary group.
	SocketGroup *int
	// Drain is how long calls in flight may take after the end begins; 20 s where zero.
	Drain time.Duration
	// MaxMessageBytes is the largest request that is accepted and answer that is sent; 16 MiB where zero, at least 64 KiB. The controller is told.
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
	endpoint := s.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	listener, err := listen(endpoint, s.PeerUID, s.SocketGroup, session.log)
	if err != nil {
		return err
	}
	defer listener.remove()
	session.log.Info("the provider serves", "endpoint", endpoint)
	return s.serve(ctx, session, listener, listener.remove)
}

// ServeListener is [Server.Serve] on a listener of the caller's, for tests in memory. The socket and who may connect are then the caller's.
func (s *Server) ServeListener(ctx context.Context, listener net.Listener) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	return s.serve(ctx, session, listener, func() {})
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
	log := s.Logger
	if log == nil {
		log = slog.Default()
	}
	return &session{
		provider: s.Provider, info: info, offers: offers, log: log, bootID: newID(), initializing: make(chan struct{}, 1), closing: make(chan struct{}), held: map[string]bool{},
		maxMessageBytes: max(orDefault(s.MaxMessageBytes, defaultMessageBytes), leastMessageBytes),
	}, nil
}

func (s *Server) serve(ctx context.Context, session *session, listener net.Listener, remove func()) error {
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(session.maxMessageBytes),
		grpc.MaxSendMsgSize(session.maxMessageBytes),
		grpc.ConnectionTimeout(handshake),
		// No HTTP/2 pings (CORE-1): neither for keepalive nor, with windows that are static, to measure bandwidth.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(4 << 20),
		grpc.ChainUnaryInterceptor(s.unary(session)),
		grpc.ChainStreamInterceptor(s.stream(session)),
	}, s.Options...)...)
	contract.RegisterProviderServiceServer(server, session)
	// A service that the provider does not have is not there at all, as its missing capability says (CORE-5).
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
	healthy := health.NewServer()
	for name := range server.GetServiceInfo() {
		healthy.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, healthy)
	reflection.Register(server)

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	session.log.Info("the provider shuts down")
	healthy.Shutdown()
	// What would never end by itself: streams.
	close(session.closing)
	remove()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		server.GracefulStop()
	}()
	drain := s.Drain
	if drain <= 0 {
		drain = defaultDrain
	}
	select {
	case <-drained:
	case <-time.After(drain):
		session.log.Warn("calls still run after the drain; they are cancelled", "drain", drain)
		// Not waited for: both stops wait for connections that have not even said that they speak HTTP/2.
		go server.Stop()
	}
	return nil
}

func (s *Server) unary(session *session) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		began := time.Now()
		defer func() {
			if panicked := recover(); panicked != nil {
				response, err = nil, session.panicked(info.FullMethod, panicked)
			}
			s.observe(info.FullMethod, began, response, err)
		}()
		return handler(ctx, request)
	}
}

func (s *Server) stream(session *session) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		began := time.Now()
		defer func() { s.observe(info.FullMethod, began, nil, err) }()
		run := func() (err error) {
			defer func() {
				if panicked := recover(); panicked != nil {
					err = session.panicked(info.FullMethod, panicked)
				}
			}()
			return handler(service, stream)
		}
		if strings.HasPrefix(info.FullMethod, "/cloudprovider.") {
			return run() // Listings may end; hints end by themselves.
		}
		// A stream of health or reflection lasts as long as its client wants: it ends with the server.
		ended := make(chan error, 1)
		go func() { ended <- run() }()
		select {
		case err := <-ended:
			return err
		case <-session.closing:
			return nil
		}
	}
}

func (s *session) panicked(method string, panicked any) error {
	s.log.Error("panic", "rpc", method, "panic", panicked, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, fmt.Sprintf("the provider's code panicked in %s; its log says more", nameOf(method)))
}

func (s *Server) observe(method string, began time.Time, response any, err error) {
	if s.Observe == nil {
		return
	}
	outcome := status.Code(err).String()
	if message, ok := response.(proto.Message); ok && err == nil {
		outcome = outcomeOf(message)
	}
	s.Observe(Observation{method, time.Since(began), outcome})
}

func outcomeOf(response proto.Message) string {
	message := response.ProtoReflect()
	has := func(name protoreflect.Name) bool {
		field := message.Descriptor().Fields().ByName(name)
		return field != nil && message.Has(field)
	}
	switch {
	case has("failed"):
		failure, ok := message.Get(message.Descriptor().Fields().ByName("failed")).Message().Interface().(*contract.Failure)
		if ok {
			return Code(failure.Code).String()
		}
		return "FAILED"
	case has("pending"):
		return "PENDING"
	default:
		return "OK"
	}
}
