package adapter

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// provider is a provider on a real Unix socket. A test sets its answers.
type provider struct {
	contract.UnimplementedProviderServiceServer
	contract.UnimplementedInstanceServiceServer
	contract.UnimplementedZoneServiceServer
	contract.UnimplementedClusterServiceServer
	contract.UnimplementedRouteServiceServer

	info *contract.GetProviderInfoResponse
	// The requests of Initialize so far.
	initialized []*contract.InitializeRequest
	scopes      []string

	lookup    func(*contract.LookupInstancesRequest) *contract.LookupInstancesResponse
	zones     func(*contract.LookupZonesRequest) *contract.LookupZonesResponse
	clusters  []*contract.ListClustersResponse
	master    func(*contract.GetControlPlaneAddressRequest) *contract.GetControlPlaneAddressResponse
	listed    []*contract.ListRoutesResponse
	created   []*contract.CreateRoutesRequest
	deleted   []*contract.DeleteRoutesRequest
	onRoutes  func(key string) []*contract.RouteResult
	deadlines []time.Duration
}

func (p *provider) GetProviderInfo(context.Context, *contract.GetProviderInfoRequest) (*contract.GetProviderInfoResponse, error) {
	return p.info, nil
}

func (p *provider) Initialize(_ context.Context, request *contract.InitializeRequest) (*contract.InitializeResponse, error) {
	scope := "the-cloud"
	if len(p.scopes) > 0 {
		scope, p.scopes = p.scopes[0], p.scopes[1:]
	}
	p.initialized = append(p.initialized, request)
	initialized := &contract.Initialized{CloudScope: scope}
	return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Initialized{Initialized: initialized}}, nil
}

func (p *provider) LookupInstances(_ context.Context, request *contract.LookupInstancesRequest) (*contract.LookupInstancesResponse, error) {
	return p.lookup(request), nil
}

func (p *provider) LookupZones(_ context.Context, request *contract.LookupZonesRequest) (*contract.LookupZonesResponse, error) {
	return p.zones(request), nil
}

func (p *provider) ListClusters(_ *contract.ListClustersRequest, stream grpc.ServerStreamingServer[contract.ListClustersResponse]) error {
	return sendAll(stream, p.clusters)
}

func (p *provider) GetControlPlaneAddress(ctx context.Context, request *contract.GetControlPlaneAddressRequest) (*contract.GetControlPlaneAddressResponse, error) {
	if deadline, ok := ctx.Deadline(); ok {
		p.deadlines = append(p.deadlines, time.Until(deadline))
	}
	return p.master(request), nil
}

func (p *provider) ListRoutes(_ *contract.ListRoutesRequest, stream grpc.ServerStreamingServer[contract.ListRoutesResponse]) error {
	return sendAll(stream, p.listed)
}

func (p *provider) CreateRoutes(_ context.Context, request *contract.CreateRoutesRequest) (*contract.CreateRoutesResponse, error) {
	p.created = append(p.created, request)
	return &contract.CreateRoutesResponse{Results: p.onRoutes(request.GetRoutes()[0].GetRouteKey())}, nil
}

func (p *provider) DeleteRoutes(_ context.Context, request *contract.DeleteRoutesRequest) (*contract.DeleteRoutesResponse, error) {
	p.deleted = append(p.deleted, request)
	return &contract.DeleteRoutesResponse{Results: p.onRoutes(request.GetRoutes()[0].GetRouteKey())}, nil
}

func sendAll[Part any](stream grpc.ServerStreamingServer[Part], parts []*Part) error {
	for _, part := range parts {
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// connected serves the provider, and returns the adapter that uses it, as on a leader.
func connected(t *testing.T, p *provider) *Cloud {
	t.Helper()
	p.info.ProviderName, p.info.BootId = "test", "boot-1"
	p.info.ProviderIdPrefixes = []string{"test://"}
	socket := filepath.Join(t.TempDir(), "p.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	contract.RegisterProviderServiceServer(server, p)
	contract.RegisterInstanceServiceServer(server, p)
	contract.RegisterZoneServiceServer(server, p)
	contract.RegisterClusterServiceServer(server, p)
	contract.RegisterRouteServiceServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	cloud, err := Connect(Config{Endpoint: unixScheme + socket, ConnectTimeout: metav1.Duration{Duration: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cloud.session.connection.Close() })
	cloud.session.setRequest(&contract.InitializeRequest{Cluster: &contract.ClusterRef{Name: "kubernetes", OwnerId: "owner-1"}})
	return cloud
}

func offering(capabilities *contract.Capabilities) *provider {
	return &provider{info: &contract.GetProviderInfoResponse{Capabilities: capabilities}}
}

// failed is a failure with this code and text.
func failed(code contract.FailureCode, message string) *contract.Failure {
	return &contract.Failure{Code: code, Message: message}
}
