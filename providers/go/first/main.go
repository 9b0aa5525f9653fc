// A first provider: machines that a file names. No cloud is asked; their Nodes get addresses, types and zones.
//
//	echo 'node-1,10.0.0.5,8-cores,rack-a' > machines.csv
//	go run ./first machines.csv unix:///tmp/machines/provider.sock
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract/probe"
	"github.com/grpc-ccm/grpc-ccm/providers/go/contract/socket"
)

const prefix = "machines://"

type machines struct {
	contract.UnimplementedProviderServiceServer
	contract.UnimplementedInstanceServiceServer
	file    string
	bootID  string       // New for every process (PROV-7).
	ownerID atomic.Value // A string, once Initialize has succeeded.
}

func (m *machines) GetProviderInfo(context.Context, *contract.GetProviderInfoRequest) (*contract.GetProviderInfoResponse, error) {
	return &contract.GetProviderInfoResponse{
		ProviderName:       "machines",
		ProviderVersion:    "1.0.0",
		BootId:             m.bootID,
		ProviderIdPrefixes: []string{prefix},
		// What is not named here is never called (CORE-5).
		Capabilities: &contract.Capabilities{Instances: &contract.InstanceCapability{}},
	}, nil
}

func (m *machines) Initialize(_ context.Context, request *contract.InitializeRequest) (*contract.InitializeResponse, error) {
	ownerID := request.Cluster.GetOwnerId()
	if ownerID == "" {
		failed := failure(contract.FailureCode_FAILURE_CODE_INVALID, "cluster.owner_id is empty; right would be the UID of kube-system")
		return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Failed{Failed: failed}}, nil
	}
	m.ownerID.Store(ownerID)
	initialized := &contract.Initialized{CloudScope: "file " + m.file}
	return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Initialized{Initialized: initialized}}, nil
}

func (m *machines) Probe(context.Context, *contract.ProbeRequest) (*contract.ProbeResponse, error) {
	return &contract.ProbeResponse{State: contract.ProbeState_PROBE_STATE_READY, BootId: m.bootID}, nil
}

func (m *machines) LookupInstances(_ context.Context, request *contract.LookupInstancesRequest) (*contract.LookupInstancesResponse, error) {
	if m.ownerID.Load() != request.Cluster.GetOwnerId() { // CORE-10; before Initialize it is nil, which equals no string.
		return &contract.LookupInstancesResponse{Failed: failure(contract.FailureCode_FAILURE_CODE_NOT_INITIALIZED, "Initialize for this owner ID comes first")}, nil
	}
	text, err := os.ReadFile(m.file)
	if err != nil { // Never a gRPC status, never ABSENT (CORE-4, INST-1).
		return &contract.LookupInstancesResponse{Failed: failure(contract.FailureCode_FAILURE_CODE_UNAVAILABLE, fmt.Sprintf("the machines cannot be read: %v", err))}, nil
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSpace(line), ","); len(fields) == 4 {
			known[fields[0]] = fields
		}
	}
	response := &contract.LookupInstancesResponse{}
	for _, node := range request.Nodes {
		response.Results = append(response.Results, &contract.LookupInstanceResult{
			NodeName: node.Name, NodeUid: node.Uid, // INST-2
			Outcome: &contract.LookupInstanceResult_Found{Found: found(node, known)},
		})
	}
	return response, nil
}

func found(node *contract.NodeView, known map[string][]string) *contract.Instance {
	name, ours := node.Name, true
	if node.ProviderId != nil { // It says who the Node is (INST-3); what lacks our prefix is another cloud's, even where it reads like a name of ours (INST-9).
		name, ours = strings.CutPrefix(*node.ProviderId, prefix)
	}
	machine := known[name]
	if !ours || machine == nil {
		// A missing line does not prove that a machine is gone: the Node is left alone, never deleted.
		return &contract.Instance{State: contract.InstanceState_INSTANCE_STATE_UNMANAGED}
	}
	return &contract.Instance{
		State:        contract.InstanceState_INSTANCE_STATE_PRESENT,
		ProviderId:   proto.String(prefix + name),
		InstanceType: &machine[2],
		Zone:         &machine[3],
		Addresses:    []*contract.NodeAddress{{Type: contract.NodeAddressType_NODE_ADDRESS_TYPE_INTERNAL_IP, Address: machine[1]}},
	}
}

func failure(code contract.FailureCode, message string) *contract.Failure {
	return &contract.Failure{Code: code, Reason: strings.TrimPrefix(code.String(), "FAILURE_CODE_"), Message: message}
}

func serve(ctx context.Context, file, endpoint string) error {
	listener, err := socket.Listen(endpoint, -1) // Modes, stale files, symbolic links (CORE-2).
	if err != nil {
		return err
	}
	defer listener.Remove()
	server := grpc.NewServer(
		// No HTTP/2 pings (CORE-1): neither for keepalive nor, with windows that are set, to measure bandwidth.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
		grpc.InitialWindowSize(1<<20),
		grpc.InitialConnWindowSize(4<<20),
		// A connection that never speaks HTTP/2 keeps the process no longer than this (CORE-17).
		grpc.ConnectionTimeout(5*time.Second),
		grpc.UnaryInterceptor(survive),
	)
	m := &machines{file: file, bootID: rand.Text()}
	contract.RegisterProviderServiceServer(server, m)
	contract.RegisterInstanceServiceServer(server, m)
	context.AfterFunc(ctx, func() {
		listener.Remove()
		time.AfterFunc(10*time.Second, func() { os.Exit(0) }) // What still runs then ends with the process (CORE-17).
		server.GracefulStop()
	})
	return server.Serve(listener) // Until the calls in flight have ended.
}

// A panic fails one call: grpc-go would let it end the process.
func survive(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			log.Printf("panic in %s: %v", info.FullMethod, panicked)
			err = errors.New("the provider's code panicked; its log says more")
		}
	}()
	return handler(ctx, request)
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(probe.Run(os.Args[2:], socket.DefaultEndpoint, os.Stdout, os.Stderr))
	}
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: first FILE unix:///PATH, or first probe --endpoint unix:///PATH")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
