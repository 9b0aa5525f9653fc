package main

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

// ClusterService and VolumeService.

// ListClusters names the clusters that the cloud knows.
func (p *Provider) ListClusters(request *contract.ListClustersRequest, stream grpc.ServerStreamingServer[contract.ListClustersResponse]) error {
	type response = contract.ListClustersResponse
	list := func(*Owner) ([]string, error) {
		catalogue, err := p.cloud.Catalogue(stream.Context())
		return slices.Sorted(maps.Keys(catalogue.Clusters)), err
	}
	return listing(stream, p, "ListClusters", request.Cluster, list,
		func(part []string) *response {
			return &response{Part: &contract.ListClustersResponse_Clusters{Clusters: &contract.ClusterNames{Names: part}}}
		},
		func(end *contract.ListEnd) *response {
			return &response{Part: &contract.ListClustersResponse_End{End: end}}
		},
		func(failure *contract.Failure) *response {
			return &response{Part: &contract.ListClustersResponse_Failed{Failed: failure}}
		})
}

// GetControlPlaneAddress says where a cluster is reached.
func (p *Provider) GetControlPlaneAddress(ctx context.Context, request *contract.GetControlPlaneAddressRequest) (*contract.GetControlPlaneAddressResponse, error) {
	type response = contract.GetControlPlaneAddressResponse
	failed := func(failure *contract.Failure) *response {
		return &response{Outcome: &contract.GetControlPlaneAddressResponse_Failed{Failed: failure}}
	}
	return answer(ctx, p, "GetControlPlaneAddress", request.Cluster, failed, func(*Owner) (*response, error) {
		catalogue, err := p.cloud.Catalogue(ctx)
		if err != nil {
			return nil, err
		}
		address, known := catalogue.Clusters[request.ClusterName]
		if !known {
			return nil, failf(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "the cloud knows no cluster %q", request.ClusterName)
		}
		return &response{Outcome: &contract.GetControlPlaneAddressResponse_Address{Address: address}}, nil
	})
}

// GetVolumeLabels gives the labels of a disk of this cloud, and none for the disks of others (VOL-1).
func (p *Provider) GetVolumeLabels(ctx context.Context, request *contract.GetVolumeLabelsRequest) (*contract.GetVolumeLabelsResponse, error) {
	type response = contract.GetVolumeLabelsResponse
	failed := func(failure *contract.Failure) *response {
		return &response{Outcome: &contract.GetVolumeLabelsResponse_Failed{Failed: failure}}
	}
	labelled := func(labels map[string]string) (*response, error) {
		return &response{Outcome: &contract.GetVolumeLabelsResponse_Labels{Labels: &contract.VolumeLabels{Labels: labels}}}, nil
	}
	return answer(ctx, p, "GetVolumeLabels", request.Cluster, failed, func(*Owner) (*response, error) {
		source := request.Volume.GetSourceType()
		if driver, ok := request.Volume.GetSource()["driver"]; ok && source == "csi" {
			source += "/" + driver
		}
		if !slices.Contains(p.settings.SourceTypes, source) {
			return labelled(nil)
		}
		catalogue, err := p.cloud.Catalogue(ctx)
		if err != nil {
			return nil, err
		}
		for _, value := range request.Volume.Source {
			if labels, known := catalogue.Volumes[value]; known {
				return labelled(labels)
			}
		}
		return nil, failf(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "the cloud knows no disk of volume %q", request.Volume.Name)
	})
}
