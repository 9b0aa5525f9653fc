import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import grpc
import pytest
from conftest import THEM, US, instance

from cloudprovider.v1alpha1 import cluster_pb2, provider_pb2, provider_pb2_grpc, route_pb2, types_pb2, volume_pb2
from socket_file import SocketError, SocketFile


def route(cidr, node="a"):
    return route_pb2.Route(route_key=cidr, name_hint="uid", destination_cidr=cidr, node_name=node)


async def create(harness, *routes, cluster=US):
    response = await harness.routes.CreateRoutes(route_pb2.CreateRoutesRequest(cluster=cluster, routes=routes))
    return ["done" if result.HasField("done") else types_pb2.FailureCode.Name(result.failed.code) for result in response.results]


async def test_each_route_has_its_own_result_and_a_converged_one_writes_nothing(ours):
    wanted = [route("10.0.1.0/24"), route("10.0.2.0"), route("10.0.3.0/24", "gone"), route("10.0.4.0/24", "b")]
    assert await create(ours, *wanted) == ["done", "FAILURE_CODE_INVALID", "FAILURE_CODE_PRECONDITION", "done"]
    assert await create(ours, wanted[0], wanted[3]) == ["done", "done"] and ours.writes() == 2
    assert await create(ours, route("10.0.1.0/24", "b")) == ["FAILURE_CODE_CONFLICT"]
    ours.edit(lambda content: content["instances"].pop(0))
    parts = [part async for part in ours.routes.ListRoutes(route_pb2.ListRoutesRequest(cluster=US))]
    assert {(r.destination_cidr, r.blackhole) for r in parts[0].routes.routes} == {("10.0.1.0/24", True), ("10.0.4.0/24", False)}
    assert await create(ours, route("10.0.1.0/24", "b")) == ["done"], "a blackhole is replaced"


async def test_a_destination_is_compared_as_a_network(ours):
    """ROUTE-8: all ways to write one network are one destination."""
    twins = [route("fd00::/64"), route("fd00:0::/64"), route("fd00:0:0::/64", "b")]
    assert await create(ours, *twins) == ["done", "done", "FAILURE_CODE_CONFLICT"]
    assert await create(ours, route("fd00:0:0::/64"), route("fd00:0::/64", "b")) == ["done", "FAILURE_CODE_CONFLICT"]
    assert [made["destination_cidr"] for made in ours.content()["routes"]] == ["fd00::/64"]
    gone = route("fd00:0::/64")
    gone.name = ours.content()["routes"][0]["name"]
    (removed,) = (await ours.routes.DeleteRoutes(route_pb2.DeleteRoutesRequest(cluster=US, routes=[gone]))).results
    assert removed.HasField("done")
    assert ours.content()["routes"] == []


async def test_a_foreign_route_is_never_removed(ours):
    await create(ours, route("10.0.1.0/24"))
    await ours.initialize(THEM)
    assert await create(ours, route("10.0.1.0/24"), cluster=THEM) == ["FAILURE_CODE_CONFLICT"]
    made, gone = route("10.0.1.0/24"), route("10.9.9.0/24")
    made.name, gone.name = ours.content()["routes"][0]["name"], "gone"
    request = route_pb2.DeleteRoutesRequest(cluster=THEM, routes=[made, gone])
    foreign, missing = (await ours.routes.DeleteRoutes(request)).results
    assert foreign.failed.code == types_pb2.FAILURE_CODE_CONFLICT and missing.HasField("done")
    await ours.initialize(US)
    request.cluster.CopyFrom(US)
    assert all(result.HasField("done") for result in (await ours.routes.DeleteRoutes(request)).results)
    assert ours.content()["routes"] == []


async def test_clusters_and_disks_are_told(ours):
    parts = [part async for part in ours.clusters.ListClusters(cluster_pb2.ListClustersRequest(cluster=US))]
    assert list(parts[0].clusters.names) == ["test"] and parts[1].end.total == 1
    request = cluster_pb2.GetControlPlaneAddressRequest(cluster=US, cluster_name="test")
    assert (await ours.clusters.GetControlPlaneAddress(request)).address == "192.0.2.77"

    async def labels(driver, handle):
        volume = volume_pb2.VolumeView(name="v", source_type="csi", source={"driver": driver, "volumeHandle": handle})
        response = await ours.volumes.GetVolumeLabels(volume_pb2.GetVolumeLabelsRequest(cluster=US, volume=volume))
        return dict(response.labels.labels) if response.HasField("labels") else types_pb2.FailureCode.Name(response.failed.code)

    assert await labels("disk.mock.grpc-ccm.io", "disk-1") == {"topology.kubernetes.io/zone": "zone-a"}
    assert await labels("disk.mock.grpc-ccm.io", "gone") == "FAILURE_CODE_NOT_FOUND"
    assert await labels("ebs.csi.aws.com", "disk-1") == {}


async def test_a_probe_answers_from_memory_while_the_cloud_is_slow(cloud):
    await cloud.initialize()
    cloud.weather(fail="CREDENTIALS")
    refused = await cloud.initialize()
    assert refused.failed.code == types_pb2.FAILURE_CODE_CREDENTIALS
    cloud.weather(slow_ms=20_000)
    slow = [asyncio.create_task(cloud.initialize()) for _ in range(64)]
    probe = await cloud.info.Probe(provider_pb2.ProbeRequest(), timeout=15)
    assert probe.state == provider_pb2.PROBE_STATE_DEGRADED and "CREDENTIALS" in probe.message
    for call in slow:
        call.cancel()


async def test_hints_tell_what_others_changed_and_unknown_tokens_are_a_resync(ours):
    def watch(token=""):
        return ours.info.WatchChanges(provider_pb2.WatchChangesRequest(cluster=US, resume_token=token))

    unknown = watch("of-another-process/1")
    first = await asyncio.wait_for(unknown.read(), 20)
    assert first.HasField("resync")
    ours.edit(lambda content: content["instances"].append(instance("d")))
    second = await asyncio.wait_for(unknown.read(), 20)
    assert second.instance.node_name == "d"
    # A stream begins with a bookmark (PROV-21).
    resumed = watch(first.resume_token)
    bookmark = await asyncio.wait_for(resumed.read(), 20)
    assert bookmark.resume_token == first.resume_token and bookmark.WhichOneof("change") is None
    assert await asyncio.wait_for(resumed.read(), 20) == second
    # The provider keeps 1,024 hints. If it no longer has all that a stream lacks, the resync comes first and is the bookmark.
    many = [instance(f"many-{number}") for number in range(1_100)]
    ours.edit(lambda content: content["instances"].extend(many))
    behind = await asyncio.wait_for(unknown.read(), 20)
    assert behind.HasField("resync")
    late = watch(first.resume_token)
    assert await asyncio.wait_for(late.read(), 20) == behind
    late.cancel()
    # At shutdown the stream ends with status OK.
    ours.stop.set()
    assert await asyncio.wait_for(unknown.read(), 20) is grpc.aio.EOF
    assert await unknown.code() == grpc.StatusCode.OK


async def test_the_socket_is_0660_in_a_directory_of_0750_and_a_living_one_is_left_alone(cloud, tmp_path):
    path = Path(cloud.endpoint.removeprefix("unix://"))
    assert path.stat().st_mode & 0o777 == 0o660 and path.parent.stat().st_mode & 0o777 == 0o750
    with pytest.raises(SocketError, match="another provider answers"):
        await SocketFile(cloud.endpoint).claim()
    (tmp_path / "link").symlink_to(path.parent)
    with pytest.raises(SocketError, match="symbolic link"):
        await SocketFile(f"unix://{tmp_path}/link/provider.sock").claim()
    (path.parent / "file").touch()
    with pytest.raises(SocketError, match="not a socket"):
        await SocketFile(f"unix://{path.parent}/file").claim()
    for endpoint in ("unix:provider.sock", "unix-abstract:x", "unix:///a/../b", "unix:///" + "x" * 120):
        with pytest.raises(SocketError):
            SocketFile(endpoint)


async def test_sigterm_lets_a_call_in_flight_finish_and_takes_the_socket_away(tmp_path):
    directory = tmp_path / "socket"
    directory.mkdir(0o750)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(directory / "provider.sock"))
    stale.close()
    endpoint, state = f"unix://{directory}/provider.sock", tmp_path / "cloud.json"
    Path(f"{state}.weather.json").write_text('{"slow_ms": 1500}')
    program = Path(__file__).parents[1] / "provider.py"
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), "--state", str(state), "--endpoint", endpoint)
    try:
        async with grpc.aio.insecure_channel(endpoint, options=[("grpc.default_authority", "localhost")]) as channel:
            stub = provider_pb2_grpc.ProviderServiceStub(channel)
            info = await stub.GetProviderInfo(provider_pb2.GetProviderInfoRequest(), wait_for_ready=True, timeout=30)
            assert info.provider_name == "mock"
            call = stub.Initialize(provider_pb2.InitializeRequest(cluster=US))
            # Sent later on the same connection: when this is answered, the earlier call has arrived.
            await stub.Probe(provider_pb2.ProbeRequest(), timeout=20)
            process.send_signal(signal.SIGTERM)
            assert (await asyncio.wait_for(call, 20)).HasField("initialized")
            assert await asyncio.wait_for(process.wait(), 20) == 0
            assert os.listdir(directory) == []
    finally:
        if process.returncode is None:
            process.kill()
