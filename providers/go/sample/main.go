// A provider of the cloud provider contract in Go.
//
//	go run ./sample --state /tmp/cloud.json --endpoint unix:///tmp/cloud/provider.sock
//	go run ./sample probe --endpoint unix:///tmp/cloud/provider.sock
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract/probe"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract/socket"
)

// How long calls in flight may take after SIGTERM.
const drain = 20 * time.Second

// NewProvider is a provider of this cloud.
func NewProvider(cloud *Cloud, settings Settings) *Provider {
	bootID := rand.Text()
	changes := &Changes{bootID: bootID, closing: make(chan struct{})}
	cloud.OnForeignChange = changes.Note
	return &Provider{cloud: cloud, settings: settings, bootID: bootID, changes: changes, held: map[string]bool{}}
}

// Serve serves until ctx ends, then drains: hints end, calls in flight may finish, whatever then still runs is cancelled.
func Serve(ctx context.Context, p *Provider, endpoint string, peerUID int) error {
	listener, err := socket.Listen(endpoint, peerUID)
	if err != nil {
		return err
	}
	defer listener.Remove()
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		// A connection that never speaks HTTP/2 keeps the process no longer than this after SIGTERM (CORE-17); gRPC waits for it.
		grpc.ConnectionTimeout(5*time.Second),
		// No HTTP/2 pings (CORE-1): neither for keepalive nor, with windows that are set, to measure bandwidth.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
		grpc.InitialWindowSize(1<<20),
		grpc.InitialConnWindowSize(4<<20),
		// What is not caught below, as in the RPCs that admit nobody: "unknown" to the controller, and the process lives.
		grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
			defer panicked(info.FullMethod, &err)
			return handler(ctx, request)
		}),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
			defer panicked(info.FullMethod, &err)
			return handler(service, stream)
		}),
	)
	contract.RegisterProviderServiceServer(server, p)
	contract.RegisterInstanceServiceServer(server, p)
	contract.RegisterZoneServiceServer(server, p)
	contract.RegisterLoadBalancerServiceServer(server, p)
	contract.RegisterRouteServiceServer(server, p)
	contract.RegisterClusterServiceServer(server, p)
	contract.RegisterVolumeServiceServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Printf("serving at %s", endpoint)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	log.Print("shutting down")
	close(p.changes.closing)
	listener.Remove()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		server.GracefulStop()
	}()
	select {
	case <-drained:
	case <-time.After(drain):
		// Not waited for: both stops wait for connections that have not even said that they speak HTTP/2.
		go server.Stop()
	}
	return nil
}

func panicked(method string, err *error) {
	if panicked := recover(); panicked != nil {
		log.Printf("panic in %s: %v", method, panicked)
		*err = status.Error(codes.Internal, "the provider's code panicked; its log says more")
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(probe.Run(os.Args[2:], socket.DefaultEndpoint, os.Stdout, os.Stderr))
	}
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	state := flag.String("state", "", "the cloud: a state file (see providers/README.md); made where there is none")
	endpoint := flag.String("endpoint", socket.DefaultEndpoint, "where to serve")
	name := flag.String("name", "mock", "the provider's name")
	prefix := flag.String("prefix", "mock://", "what provider IDs begin with")
	scope := flag.String("cloud-scope", "mock account, mock region", "account, project and region")
	pools := flag.String("pools", "192.0.2.0/24,2001:db8::/112", "addresses of load balancers: CIDRs, separated by commas")
	provisioning := flag.Int("provisioning-ms", 0, "how long a load balancer takes to be made and to go")
	peerUID := flag.Int("peer-uid", -1, "accept only connections of this user and of our own; everybody whom the socket's mode lets in where negative")
	flag.Parse()
	if *state == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "--state is missing, or there is an argument that is no flag; give the cloud's state file, such as --state cloud.json")
		os.Exit(2)
	}
	cloud, err := Open(*state)
	if err != nil {
		log.Fatal(err)
	}
	settings := Settings{
		Name: *name, Prefix: *prefix, CloudScope: *scope, Pools: strings.Split(*pools, ","),
		Classes: []string{"mock.grpc-ccm.io/lb"}, SourceTypes: []string{"csi/disk.mock.grpc-ccm.io"}, Provisioning: time.Duration(*provisioning) * time.Millisecond,
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := Serve(ctx, NewProvider(cloud, settings), *endpoint, *peerUID); err != nil {
		log.Fatal(err)
	}
}
