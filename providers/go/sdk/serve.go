package sdk

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"strings"
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
	// DefaultMaxMessageBytes is the default limit of the requests that the server accepts and of the
	// answers that it sends.
	DefaultMaxMessageBytes = 16 * 1024 * 1024
	// DefaultDrain is how long calls in flight may take by default after the shutdown has begun
	// (CORE-17).
	DefaultDrain = 20 * time.Second

	leastMessageBytes = 64 * 1024
	// How long a connection may take to begin HTTP/2.
	handshake = 5 * time.Second
	// How long the end of the streams waits at most for the server to send GOAWAY on every connection.
	goAway = time.Second
	// How long connections may take to close once their calls have been cancelled.
	closing = time.Second
)

// ServeOptions say where and how [Serve] serves. A field that [Server] has too has the same meaning
// there.
type ServeOptions struct {
	// Endpoint is the address: unix:// and an absolute path of at most 107 bytes, in a separate directory. [DefaultEndpoint] if empty.
	Endpoint string
	// PeerUID is the only user beside the process's own whose connections the server accepts (CORE-3); nil: all users that the socket's mode admits.
	PeerUID *int
	// SocketGroup is the group of the socket, and of the directories that the server makes. If nil,
	// each has the group of its parent directory where that has the setgid bit, else the process's
	// own. The directories that the server makes have no setgid bit.
	SocketGroup *int
	// Drain is how long calls in flight may take after the shutdown begins; [DefaultDrain] if zero.
	Drain time.Duration
	// MaxMessageBytes limits the requests that the server accepts and the answers that it sends;
	// [DefaultMaxMessageBytes] if zero, at least 64 KiB.
	MaxMessageBytes int
	// Logger gets faults, refusals and the start and end of the process; slog's default if nil.
	Logger *slog.Logger
	// Observe gets each call that reached a handler when the call has ended, for metrics. It must not block. The server logs a panic of it; the call's
	// answer stays.
	Observe func(Observation)
	// Serve calls Closing after it has sent GOAWAY, at the latest after 1 s, or after Drain if that
	// is shorter, and before it waits for calls in flight. Calls that would never end by
	// themselves, such as streams of hints, must end then.
	Closing func()
	// Options are further options of gRPC, such as interceptors and stats handlers.
	Options []grpc.ServerOption
}

// Serve serves the services that register registers, on a Unix socket, until the context ends. Then
// it shuts down as [Server] describes. It is the layer below [Server.Serve], for programs that
// implement the contract's services themselves, such as the bridge. It handles the socket and its
// peers, gRPC's settings, panics (CORE-4), health, reflection and shutdown. The caller handles the
// session, batches, deadlines and the limits of fields.
func Serve(ctx context.Context, register func(grpc.ServiceRegistrar), options ServeOptions) error {
	endpoint := options.Endpoint
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	listener, err := listen(endpoint, options.PeerUID, options.SocketGroup, options.log())
	if err != nil {
		return err
	}
	defer listener.remove()
	options.log().Info("the provider serves", "endpoint", endpoint)
	return options.serve(ctx, register, listener, listener.remove)
}

func (o *ServeOptions) log() *slog.Logger {
	if o.Logger == nil {
		return slog.Default()
	}
	return o.Logger
}

func (o *ServeOptions) maxMessageBytes() int {
	return max(orDefault(o.MaxMessageBytes, DefaultMaxMessageBytes), leastMessageBytes)
}

func (o *ServeOptions) serve(ctx context.Context, register func(grpc.ServiceRegistrar), listener net.Listener, remove func()) error {
	// Closed when the streams of health, reflection and the vendor's own services have to end.
	ending := make(chan struct{})
	server := grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(o.maxMessageBytes()),
		grpc.MaxSendMsgSize(o.maxMessageBytes()),
		grpc.ConnectionTimeout(handshake),
		// No HTTP/2 pings (CORE-1): neither for keepalive nor, with windows that are static, to
		// measure bandwidth.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
		grpc.StaticStreamWindowSize(1 << 20),
		grpc.StaticConnWindowSize(4 << 20),
		grpc.ChainUnaryInterceptor(o.unary),
		grpc.ChainStreamInterceptor(o.stream(ending)),
	}, o.Options...)...)
	register(server)
	healthy := health.NewServer()
	for name := range server.GetServiceInfo() {
		healthy.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(server, healthy)
	reflection.Register(server)

	served, connections := make(chan error, 1), &conversations{Listener: listener}
	go func() { served <- server.Serve(connections) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain := orDefault(o.Drain, DefaultDrain)
	o.log().Info("the provider shuts down", "drain", drain)
	healthy.Shutdown()
	remove()
	over, drained, told := time.After(drain), make(chan struct{}), connections.allTold()
	go func() {
		defer close(drained)
		server.GracefulStop()
	}()
	// CORE-17: GOAWAY first, then the ends of the streams. A connection that does not take its GOAWAY
	// delays them by goAway at most (PROV-6).
	select {
	case <-told:
	case <-time.After(min(goAway, drain)):
	}
	close(ending)
	if o.Closing != nil {
		o.Closing()
	}
	select {
	case <-drained:
	case <-over:
		o.log().Warn("calls still run after the drain; cancelling them", "drain", drain)
		// Both stops also wait for connections that have not begun HTTP/2. So this wait has a limit.
		go server.Stop()
		select {
		case <-drained:
		case <-time.After(closing):
		}
	}
	return nil
}

func (o *ServeOptions) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	began := time.Now()
	defer func() {
		if panicked := recover(); panicked != nil {
			response, err = nil, o.panicked(info.FullMethod, panicked)
		}
		o.observe(info.FullMethod, began, response, err)
	}()
	return handler(ctx, request)
}

func (o *ServeOptions) stream(ending <-chan struct{}) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
		began := time.Now()
		defer func() { o.observe(info.FullMethod, began, nil, err) }()
		run := func() (err error) {
			defer func() {
				if panicked := recover(); panicked != nil {
					err = o.panicked(info.FullMethod, panicked)
				}
			}()
			return handler(service, stream)
		}
		if strings.HasPrefix(info.FullMethod, "/cloudprovider.") {
			return run() // A listing may finish within the drain. Streams of hints end at Closing.
		}
		// A client could keep a stream of health or reflection open for ever. So the shutdown ends
		// it.
		ended := make(chan error, 1)
		go func() { ended <- run() }()
		select {
		case err := <-ended:
			return err
		case <-ending:
			return nil
		}
	}
}

func (o *ServeOptions) panicked(method string, panicked any) error {
	o.log().Error("panic", "rpc", method, "panic", panicked, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, fmt.Sprintf("the provider's code panicked in %s; its log says more", nameOf(method)))
}

func (o *ServeOptions) observe(method string, began time.Time, response any, err error) {
	if o.Observe == nil {
		return
	}
	outcome := status.Code(err).String()
	if message, ok := response.(proto.Message); ok && err == nil {
		outcome = outcomeOf(message)
	}
	_, _ = Guarded(o.log(), "Observe", func() (struct{}, error) {
		o.Observe(Observation{method, time.Since(began), outcome})
		return struct{}{}, nil
	})
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
