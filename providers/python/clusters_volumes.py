"""ClusterService and VolumeService."""

from typing import Any

from cloudprovider.v1alpha1 import cluster_pb2 as cluster_pb
from cloudprovider.v1alpha1 import cluster_pb2_grpc, volume_pb2, volume_pb2_grpc
from service import Fail, Owner, Provider, listing, unary


class Clusters(cluster_pb2_grpc.ClusterServiceServicer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @listing(cluster_pb.ListClustersResponse, lambda part: cluster_pb.ListClustersResponse(clusters=cluster_pb.ClusterNames(names=part)))
    async def ListClusters(self, request: cluster_pb.ListClustersRequest, owner: Owner) -> list[str]:
        return sorted((await self.provider.cloud.catalogue())["clusters"])

    @unary(lambda failure: cluster_pb.GetControlPlaneAddressResponse(failed=failure))
    async def GetControlPlaneAddress(self, request: Any, owner: Owner, context: Any) -> cluster_pb.GetControlPlaneAddressResponse:
        clusters = (await self.provider.cloud.catalogue())["clusters"]
        if request.cluster_name not in clusters:
            raise Fail("NOT_FOUND", f"the cloud knows no cluster {request.cluster_name!r}")
        return cluster_pb.GetControlPlaneAddressResponse(address=clusters[request.cluster_name])


class Volumes(volume_pb2_grpc.VolumeServiceServicer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @unary(lambda failure: volume_pb2.GetVolumeLabelsResponse(failed=failure))
    async def GetVolumeLabels(self, request: volume_pb2.GetVolumeLabelsRequest, owner: Owner, context: Any) -> volume_pb2.GetVolumeLabelsResponse:
        if not request.HasField("volume"):
            raise Fail("INVALID", "the request has no volume")
        volume = request.volume
        source = f"csi/{volume.source['driver']}" if volume.source_type == "csi" and "driver" in volume.source else volume.source_type
        response = volume_pb2.GetVolumeLabelsResponse(labels=volume_pb2.VolumeLabels())
        if source not in self.provider.settings.source_types:
            return response  # Another cloud's volume: no labels (VOL-1).
        disks = (await self.provider.cloud.catalogue())["volumes"]
        labels = next((disks[value] for value in volume.source.values() if value in disks), None)
        if labels is None:
            raise Fail("NOT_FOUND", f"the cloud knows no disk of volume {volume.name!r}")
        response.labels.labels.update(labels)
        return response
