package adapter

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/grpc-ccm/grpc-ccm/providers/go/contract"
)

var _ cloudprovider.Clusters = (*Cloud)(nil)

// ListClusters lists the names of the clusters that the cloud knows.
func (c *Cloud) ListClusters(ctx context.Context) ([]string, error) {
	client := contract.NewClusterServiceClient(c.session.connection)
	return listed(ctx, c.session, kind{inFlight(0), listDeadline, (*contract.DeadlineHints).GetList},
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (stream[*contract.ListClustersResponse], error) {
			return client.ListClusters(ctx, &contract.ListClustersRequest{Cluster: cluster}, options...)
		},
		func(part *contract.ListClustersResponse) []string { return part.GetClusters().GetNames() })
}

// Master is the address of a cluster's control plane.
func (c *Cloud) Master(ctx context.Context, clusterName string) (string, error) {
	client := contract.NewClusterServiceClient(c.session.connection)
	answer, err := call(ctx, c.session, kind{inFlight(0), lookupDeadline, nil},
		func(ctx context.Context, cluster *contract.ClusterRef, options ...grpc.CallOption) (*contract.GetControlPlaneAddressResponse, error) {
			return client.GetControlPlaneAddress(ctx, &contract.GetControlPlaneAddressRequest{Cluster: cluster, ClusterName: clusterName}, options...)
		},
		(*contract.GetControlPlaneAddressResponse).GetFailed)
	if err != nil {
		return "", err
	}
	if answer.GetAddress() == "" {
		return "", errors.New("the provider answered without an address")
	}
	return answer.GetAddress(), nil
}
