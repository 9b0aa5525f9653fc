package main

import (
	"context"
	"log"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// ProviderService.

const (
	version         = "1.0.0"
	maxMessageBytes = 16 * 1024 * 1024
)

// GetProviderInfo makes no call to the cloud (PROV-1).
func (p *Provider) GetProviderInfo(_ context.Context, request *contract.GetProviderInfoRequest) (*contract.GetProviderInfoResponse, error) {
	log.Printf("a controller asks who we are: version %s, minor %d", request.ControllerVersion, request.ContractMinor)
	var features []contract.ServiceFeature
	for _, number := range slices.Sorted(maps.Keys(contract.ServiceFeature_name)) {
		if number != 0 {
			features = append(features, contract.ServiceFeature(number))
		}
	}
	batch := uint32(maxBatch)
	inFlight := func(n uint32) *uint32 { return &n }
	maxRequest := uint64(maxMessageBytes)
	return &contract.GetProviderInfoResponse{
		ProviderName:       p.settings.Name,
		ProviderVersion:    version,
		BootId:             p.bootID,
		ProviderIdPrefixes: []string{p.settings.Prefix},
		MaxRequestBytes:    &maxRequest,
		// A block that is missing here means that the service behind it is not served (CORE-5): leave out what your cloud has not.
		Capabilities: &contract.Capabilities{
			Instances: &contract.InstanceCapability{MaxBatch: &batch, Listing: true, PowerState: true, MaxInFlight: inFlight(8)},
			Zones:     &contract.ZoneCapability{},
			LoadBalancers: &contract.LoadBalancerCapability{
				Classes:      p.settings.Classes,
				DefaultClass: true,
				Listing:      true,
				InSync:       true,
				TargetScope:  contract.TargetScope_TARGET_SCOPE_OWNED,
				Features:     features,
				MaxInFlight:  inFlight(16),
			},
			Routes:   &contract.RouteCapability{MaxBatch: &batch, MaxInFlight: inFlight(4)},
			Clusters: &contract.ClusterCapability{},
			Volumes:  &contract.VolumeCapability{SourceTypes: p.settings.SourceTypes, MaxInFlight: inFlight(8)},
			Changes:  &contract.ChangeCapability{},
		},
		// Empty: of each Node we want to see nothing beyond its name, UID, provider ID and addresses.
		NodeProjection: &contract.NodeProjection{},
	}, nil
}

// Initialize says for whom the provider works from here on.
func (p *Provider) Initialize(ctx context.Context, request *contract.InitializeRequest) (*contract.InitializeResponse, error) {
	err := checkOwnerID(request.Cluster)
	if err == nil {
		_, err = p.cloud.Read(ctx, 0) // Finds out whether the credentials are good (PROV-3).
	}
	if err != nil {
		return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Failed{Failed: failureOf("Initialize", err)}}, nil
	}
	cluster := request.Cluster
	p.mutex.Lock()
	p.owner = &Owner{ClusterName: cluster.Name, OwnerID: cluster.OwnerId, Previous: request.PreviousOwnerIds}
	p.mutex.Unlock()
	log.Printf("initialised for cluster %s, owner %s", cluster.Name, cluster.OwnerId)
	initialized := &contract.Initialized{CloudScope: p.settings.CloudScope}
	return &contract.InitializeResponse{Outcome: &contract.InitializeResponse_Initialized{Initialized: initialized}}, nil
}

// Probe answers from memory (PROV-4): how the last operation of the cloud went.
func (p *Provider) Probe(context.Context, *contract.ProbeRequest) (*contract.ProbeResponse, error) {
	response := &contract.ProbeResponse{State: contract.ProbeState_PROBE_STATE_READY, BootId: p.bootID}
	lastSuccess, trouble := p.cloud.Health()
	if trouble != "" {
		response.State, response.Message = contract.ProbeState_PROBE_STATE_DEGRADED, shortened(trouble)
	}
	if !lastSuccess.IsZero() {
		response.LastCloudSuccess = timestamppb.New(lastSuccess)
	}
	return response, nil
}
