"""A provider of the cloud provider contract in Python: ProviderService, and the program that serves it all.

    python provider.py --state cloud.json --endpoint unix:///tmp/cloud/provider.sock
    python provider.py probe --endpoint unix:///tmp/cloud/provider.sock
"""

import argparse
import asyncio
import ipaddress
import logging
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

try:
    from cloudprovider.v1alpha1 import provider_pb2 as pb
except ModuleNotFoundError:
    sys.exit("the code of the contract has not been generated yet: run `python generate.py` once")
from cloudprovider.v1alpha1 import cluster_pb2_grpc, instance_pb2_grpc, load_balancer_pb2_grpc, provider_pb2_grpc
from cloudprovider.v1alpha1 import route_pb2_grpc, volume_pb2_grpc, zone_pb2_grpc
import probe
from changes import Changes
from cloud import Cloud, CloudError
from clusters_volumes import Clusters, Volumes
from instances import Instances
from load_balancers import LoadBalancers
from routes import Routes
from service import MAX_BATCH, NAME_BYTES, CallIds, Fail, Owner, Provider, Settings, failure_of, log, shortened
from socket_file import DEFAULT_ENDPOINT, SocketError, SocketFile

VERSION = "1.0.0"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
#: How long calls in flight may take after SIGTERM, in seconds.
DRAIN = 20
OPTIONS = [
    # gRPC does not count the frame around a message.
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # No HTTP/2 pings (CORE-1): neither for keepalive nor to measure bandwidth.
    ("grpc.keepalive_time_ms", 2**31 - 1),
    ("grpc.http2.bdp_probe", 0),
    # No other process may bind the same port (gRPC never shares a Unix socket).
    ("grpc.so_reuseport", 0),
]


class ProviderService(provider_pb2_grpc.ProviderServiceServicer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.changes = Changes(provider.cloud, provider.boot_id, provider.closing)

    async def GetProviderInfo(self, request: pb.GetProviderInfoRequest, context: Any) -> pb.GetProviderInfoResponse:
        log.info("a controller called GetProviderInfo: version %s, minor %d", request.controller_version, request.contract_minor)
        settings = self.provider.settings
        features = [number for name, number in pb.ServiceFeature.items() if number != pb.SERVICE_FEATURE_UNSPECIFIED]
        return pb.GetProviderInfoResponse(
            provider_name=settings.name,
            provider_version=VERSION,
            boot_id=self.provider.boot_id,
            provider_id_prefixes=[settings.prefix],
            max_request_bytes=MAX_MESSAGE_BYTES,
            # A missing block means that the provider does not serve that service (CORE-5): leave out the services that your cloud lacks.
            capabilities=pb.Capabilities(
                instances=pb.InstanceCapability(max_batch=MAX_BATCH, listing=True, power_state=True, max_in_flight=8),
                zones=pb.ZoneCapability(),
                load_balancers=pb.LoadBalancerCapability(
                    classes=settings.classes,
                    default_class=True,
                    listing=True,
                    in_sync=True,
                    target_scope=pb.TARGET_SCOPE_OWNED,
                    features=features,
                    max_in_flight=16,
                ),
                routes=pb.RouteCapability(max_batch=MAX_BATCH, max_in_flight=4),
                clusters=pb.ClusterCapability(),
                volumes=pb.VolumeCapability(source_types=settings.source_types, max_in_flight=8),
                changes=pb.ChangeCapability(),
            ),
            # Empty: the provider needs only name, UID, provider ID and addresses of each Node.
            node_projection={},
        )

    async def Initialize(self, request: pb.InitializeRequest, context: Any) -> pb.InitializeResponse:
        try:
            cluster = request.cluster
            if not 0 < len(cluster.owner_id.encode()) <= NAME_BYTES:
                raise Fail("INVALID", f"cluster.owner_id has {len(cluster.owner_id.encode())} bytes; right would be 1 to {NAME_BYTES}")
            await self.provider.cloud.read()  # Verifies the credentials (PROV-3).
            self.provider.owner = Owner(cluster.name, cluster.owner_id, frozenset(request.previous_owner_ids), request.read_only)
            log.info("initialised for cluster %s, owner %s", cluster.name, cluster.owner_id)
            scope = self.provider.settings.cloud_scope
            return pb.InitializeResponse(initialized=pb.Initialized(cloud_scope=scope, read_only=request.read_only))
        except Exception as error:
            return pb.InitializeResponse(failed=failure_of("Initialize", error))

    async def Probe(self, request: pb.ProbeRequest, context: Any) -> pb.ProbeResponse:
        """From memory (PROV-4): the result of the last operation of the cloud."""
        cloud = self.provider.cloud
        response = pb.ProbeResponse(state=pb.PROBE_STATE_READY, boot_id=self.provider.boot_id)
        if cloud.trouble is not None:
            response.state, response.message = pb.PROBE_STATE_DEGRADED, shortened(cloud.trouble)
        if cloud.last_success is not None:
            response.last_cloud_success.FromNanoseconds(int(cloud.last_success * 1e9))
        return response

    async def WatchChanges(self, request: pb.WatchChangesRequest, context: Any) -> AsyncIterator[pb.WatchChangesResponse]:
        try:
            self.provider.admit(request.cluster)
        except Fail as failure:
            yield pb.WatchChangesResponse(failed=failure.to_proto())
            return
        # Opens the stream before the first hint.
        await context.send_initial_metadata(())
        # Ends with status OK when the provider shuts down (PROV-6).
        async for hint in self.changes.after(request.resume_token):
            yield hint


async def serve(provider: Provider, endpoint: str, stop: asyncio.Event) -> None:
    """Serves until `stop`, then drains: hints end, calls in flight may finish, and calls that still run after 20 s are cancelled."""
    socket = SocketFile(endpoint)
    await socket.claim()
    server = grpc.aio.server(options=OPTIONS, interceptors=[CallIds()])
    provider_pb2_grpc.add_ProviderServiceServicer_to_server(ProviderService(provider), server)
    instances = Instances(provider)
    instance_pb2_grpc.add_InstanceServiceServicer_to_server(instances, server)
    zone_pb2_grpc.add_ZoneServiceServicer_to_server(instances, server)
    load_balancer_pb2_grpc.add_LoadBalancerServiceServicer_to_server(LoadBalancers(provider), server)
    route_pb2_grpc.add_RouteServiceServicer_to_server(Routes(provider), server)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(Clusters(provider), server)
    volume_pb2_grpc.add_VolumeServiceServicer_to_server(Volumes(provider), server)
    try:
        server.add_insecure_port(f"unix://{socket.private}")
        await server.start()
        socket.publish()
        log.info("serving at %s", endpoint)
        await stop.wait()
        log.info("shutting down")
        provider.closing.set()
        socket.remove()
        await server.stop(DRAIN)
    finally:
        socket.remove()


def pool(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; write a CIDR such as 192.0.2.0/24") from error


def arguments(argv: list[str]) -> argparse.Namespace:
    default = Settings()
    parser = argparse.ArgumentParser(description="A provider of the cloud provider contract; its cloud is a file.")
    parser.add_argument("--state", type=Path, required=True, help="the cloud: a state file (see providers/README.md); created if it does not exist")
    parser.add_argument("--endpoint", default=DEFAULT_ENDPOINT, help="where to serve (default: %(default)s)")
    parser.add_argument("--name", default=default.name, help="the provider's name (default: %(default)s)")
    parser.add_argument("--prefix", default=default.prefix, help="the prefix of provider IDs (default: %(default)s)")
    parser.add_argument("--cloud-scope", default=default.cloud_scope, help="account, project and region (default: %(default)s)")
    parser.add_argument("--pool", action="append", type=pool, help=f"addresses of load balancers, a CIDR; may repeat (default: {' '.join(default.pools)})")
    parser.add_argument("--provisioning-ms", type=int, default=0, help="how long the cloud takes to create and to delete a load balancer (default: 0)")
    return parser.parse_args(argv)


async def main(argv: list[str]) -> None:
    args = arguments(argv)
    settings = Settings(args.name, args.prefix, args.cloud_scope, tuple(args.pool or Settings.pools), provisioning_ms=args.provisioning_ms)
    cloud = Cloud(args.state)
    cloud.create_if_missing()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(Provider(cloud, settings), args.endpoint, stop)


if __name__ == "__main__":
    if sys.argv[1:2] == ["probe"]:
        sys.exit(probe.main(sys.argv[2:]))
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(main(sys.argv[1:]))
    except (SocketError, CloudError) as error:
        sys.exit(str(error))
