package main

import (
	"context"
	"maps"
	"slices"

	"github.com/grpc-ccm/grpc-ccm/providers/go/sdk"
)

// sdk.Clusters and sdk.Volumes.

// ListClusters names the clusters that the cloud knows.
func (p *Provider) ListClusters(ctx context.Context, _ *sdk.Call) ([]string, error) {
	catalogue, err := p.cloud.Catalogue(ctx)
	return slices.Sorted(maps.Keys(catalogue.Clusters)), err
}

// ControlPlaneAddress returns the address of a cluster's control plane.
func (p *Provider) ControlPlaneAddress(ctx context.Context, _ *sdk.Call, name string) (string, error) {
	catalogue, err := p.cloud.Catalogue(ctx)
	if err != nil {
		return "", err
	}
	address, known := catalogue.Clusters[name]
	if !known {
		return "", sdk.NotFound("the cloud knows no cluster %q", name)
	}
	return address, nil
}

// VolumeLabels gives the labels of a disk of this cloud, and none for the disks of others (VOL-1).
func (p *Provider) VolumeLabels(ctx context.Context, _ *sdk.Call, volume sdk.Volume) (map[string]string, error) {
	if !slices.Contains(p.settings.SourceTypes, volume.SourceName()) {
		return nil, nil
	}
	catalogue, err := p.cloud.Catalogue(ctx)
	if err != nil {
		return nil, err
	}
	for _, value := range volume.Source {
		if labels, known := catalogue.Volumes[value]; known {
			return labels, nil
		}
	}
	return nil, sdk.NotFound("the cloud knows no disk of volume %q", volume.Name)
}
