"""A provider on a real socket, called by a test client in place of the controller."""

import asyncio
import json
from pathlib import Path

import grpc
import pytest

from cloud import Cloud
from cloudprovider.v1alpha1 import cluster_pb2_grpc, instance_pb2_grpc, load_balancer_pb2_grpc, provider_pb2, provider_pb2_grpc
from cloudprovider.v1alpha1 import route_pb2_grpc, types_pb2, volume_pb2_grpc, zone_pb2_grpc
from provider import serve
from service import Provider, Settings

US = types_pb2.ClusterRef(name="test", owner_id="us")
THEM = types_pb2.ClusterRef(name="other", owner_id="them")


class Harness:
    """The stubs of all services, and the cloud's files."""

    def __init__(self, state: Path, endpoint: str, provider: Provider) -> None:
        self.state, self.endpoint, self.provider = state, endpoint, provider
        self.channel = grpc.aio.insecure_channel(endpoint, options=[("grpc.default_authority", "localhost")])
        self.info = provider_pb2_grpc.ProviderServiceStub(self.channel)
        self.instances = instance_pb2_grpc.InstanceServiceStub(self.channel)
        self.zones = zone_pb2_grpc.ZoneServiceStub(self.channel)
        self.load_balancers = load_balancer_pb2_grpc.LoadBalancerServiceStub(self.channel)
        self.routes = route_pb2_grpc.RouteServiceStub(self.channel)
        self.clusters = cluster_pb2_grpc.ClusterServiceStub(self.channel)
        self.volumes = volume_pb2_grpc.VolumeServiceStub(self.channel)

    async def initialize(self, cluster=US, previous=()):
        return await self.info.Initialize(provider_pb2.InitializeRequest(cluster=cluster, previous_owner_ids=previous))

    def weather(self, **weather) -> None:
        self.beside(".weather.json").write_text(json.dumps(weather))

    def writes(self) -> int:
        path = self.beside(".writes")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def beside(self, suffix: str) -> Path:
        return self.state.with_name(self.state.name + suffix)

    def content(self) -> dict:
        return json.loads(self.state.read_text())

    def edit(self, change) -> None:
        """Changes the cloud directly, as its console would."""
        content = self.content()
        change(content)
        new = self.beside(".edited")
        new.write_text(json.dumps(content))
        new.rename(self.state)


def instance(name: str, **more) -> dict:
    return {
        "id": name,
        "name": name,
        "provider_id": f"mock://zone-a/{name}",
        "type": "mock.large",
        "zone": "zone-a",
        "region": "region-1",
        "addresses": [{"InternalIP": "10.0.0.1"}, {"Hostname": name}],
        "labels": {},
        "power": "running",
        **more,
    }


@pytest.fixture
async def cloud(tmp_path):
    state = tmp_path / "cloud.json"
    instances = [instance(name) for name in ("a", "b", "c")]
    empty = {"load_balancers": [], "routes": []}
    state.write_text(json.dumps({"format": 1, "now_ms": 0, "saved_at_unix_ms": 0, "last_number": 0, "instances": instances, **empty}))
    catalogue = {"clusters": {"test": "192.0.2.77"}, "volumes": {"disk-1": {"topology.kubernetes.io/zone": "zone-a"}}}
    (tmp_path / "cloud.json.catalogue.json").write_text(json.dumps(catalogue))
    endpoint = f"unix://{tmp_path}/socket/provider.sock"
    provider, stop = Provider(Cloud(state), Settings()), asyncio.Event()
    serving = asyncio.create_task(serve(provider, endpoint, stop))
    harness = Harness(state, endpoint, provider)
    await asyncio.wait_for(harness.channel.channel_ready(), 20)
    harness.stop = stop
    yield harness
    await harness.channel.close()
    stop.set()
    await asyncio.wait_for(serving, 30)


@pytest.fixture
async def ours(cloud):
    """A served provider after a successful Initialize."""
    assert (await cloud.initialize()).HasField("initialized")
    return cloud
