package bridge

import (
	"context"
	"errors"
	"slices"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// ListClusters lists the names of the clusters that the cloud knows.
func (b *Bridge) ListClusters(request *contract.ListClustersRequest, stream contract.ClusterService_ListClustersServer) error {
	failed := func(failure *contract.Failure) error {
		return stream.Send(&contract.ListClustersResponse{Part: &contract.ListClustersResponse_Failed{Failed: failure}})
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	ctx := withOwner(stream.Context(), owner)
	names, err := ask(ctx, b, b.general, "ListClusters", sdk.BudgetOf(ctx), nil, b.parts().clusters.ListClusters)
	if err != nil {
		return failed(b.failure(err))
	}
	for _, name := range names {
		if err := fits("the cluster's name", name, nameBytes); err != nil {
			return failed(fault("%v", err))
		}
	}
	for page := range slices.Chunk(names, pageItems) {
		if err := stream.Send(&contract.ListClustersResponse{Part: &contract.ListClustersResponse_Clusters{Clusters: &contract.ClusterNames{Names: page}}}); err != nil {
			return err
		}
	}
	return stream.Send(&contract.ListClustersResponse{Part: &contract.ListClustersResponse_End{End: &contract.ListEnd{Total: uint64(len(names))}}})
}

// GetControlPlaneAddress calls Go's Master. Master has no error for an unknown cluster, so a cluster that ListClusters lacks is NOT_FOUND.
func (b *Bridge) GetControlPlaneAddress(ctx context.Context, request *contract.GetControlPlaneAddressRequest) (*contract.GetControlPlaneAddressResponse, error) {
	failed := func(failure *contract.Failure) (*contract.GetControlPlaneAddressResponse, error) {
		return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Failed{Failed: failure}}, nil
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	name := request.GetClusterName()
	if name == "" {
		return failed(invalid("the request names no cluster"))
	}
	address, err := ask(withOwner(ctx, owner), b, b.general, "Master", sdk.BudgetOf(ctx), nil, func(ctx context.Context) (string, error) {
		names, err := b.parts().clusters.ListClusters(ctx)
		switch {
		case err != nil:
			return "", err
		case !slices.Contains(names, name):
			return "", &refusal{fail(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "NoCluster", "the cloud knows no cluster %q", name)}
		}
		return b.parts().clusters.Master(ctx, name)
	})
	var own *refusal
	switch {
	case errors.As(err, &own):
		return failed(own.failure)
	case err != nil:
		return failed(b.failure(err))
	case address == "" || fits("the address", address, nameBytes) != nil:
		return failed(fault("Master answered the address %q", address))
	}
	return &contract.GetControlPlaneAddressResponse{Outcome: &contract.GetControlPlaneAddressResponse_Address{Address: address}}, nil
}

// GetVolumeLabels calls Go's PVLabeler.
func (b *Bridge) GetVolumeLabels(ctx context.Context, request *contract.GetVolumeLabelsRequest) (*contract.GetVolumeLabelsResponse, error) {
	failed := func(failure *contract.Failure) (*contract.GetVolumeLabelsResponse, error) {
		return &contract.GetVolumeLabelsResponse{Outcome: &contract.GetVolumeLabelsResponse_Failed{Failed: failure}}, nil
	}
	owner, failure := b.admit(request.GetCluster())
	if failure != nil {
		return failed(failure)
	}
	if request.GetVolume() == nil {
		return failed(invalid("the request has no volume"))
	}
	if request.GetVolume().GetSourceType() == "" {
		return failed(invalid("the volume %q of the request has no source", request.GetVolume().GetName()))
	}
	if sources := b.options.VolumeSources; len(sources) > 0 && !slices.Contains(sources, sourceOf(request.GetVolume())) {
		return &contract.GetVolumeLabelsResponse{Outcome: &contract.GetVolumeLabelsResponse_Labels{Labels: &contract.VolumeLabels{}}}, nil
	}
	volume, err := volumeOf(request.GetVolume())
	if err != nil {
		return failed(invalid("%v", err))
	}
	labels, err := ask(withOwner(ctx, owner), b, b.general, "GetLabelsForVolume", sdk.BudgetOf(ctx), nil, func(ctx context.Context) (map[string]string, error) {
		return b.parts().volumes.GetLabelsForVolume(ctx, volume)
	})
	switch {
	case errors.Is(err, cloudprovider.DiskNotFound):
		return failed(fail(contract.FailureCode_FAILURE_CODE_NOT_FOUND, "NoDisk", "%v", err))
	case err != nil:
		return failed(b.failure(err))
	}
	told := map[string]string{}
	for key, value := range labels {
		told[readable(key)] = readable(value)
	}
	return &contract.GetVolumeLabelsResponse{Outcome: &contract.GetVolumeLabelsResponse_Labels{Labels: &contract.VolumeLabels{Labels: told}}}, nil
}

// sourceOf returns the source of a volume in the form of VolumeCapability.source_types.
func sourceOf(volume *contract.VolumeView) string {
	if volume.GetSourceType() == "csi" {
		return "csi/" + volume.GetSource()["driver"]
	}
	return volume.GetSourceType()
}
