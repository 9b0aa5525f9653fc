import asyncio

import grpc
import pytest
from conftest import THEM, US

from cloudprovider.v1alpha1 import load_balancer_pb2 as pb
from cloudprovider.v1alpha1 import provider_pb2, route_pb2, types_pb2


def service(uid="uid-1", **more):
    ports = [pb.ServicePort(protocol="TCP", port=80, node_port=30080)]
    return pb.ServiceView(namespace="default", name="web", uid=uid, ports=ports, session_affinity="None", external_traffic_policy="Cluster", **more)


def targets(*names):
    return pb.TargetSet(inline=pb.TargetList(nodes=[types_pb2.NodeView(name=name) for name in names]))


def code(failure):
    return types_pb2.FailureCode.Name(failure.code)[len("FAILURE_CODE_") :]


async def ensure(harness, cluster=US, service=service(), **more):
    return await harness.load_balancers.EnsureLoadBalancer(pb.EnsureLoadBalancerRequest(cluster=cluster, service=service, **more))


async def get(harness, service=service(), **more):
    response = await harness.load_balancers.GetLoadBalancer(pb.GetLoadBalancerRequest(cluster=US, service=service, **more))
    return response.found


async def delete(harness, service=service(), **more):
    return await harness.load_balancers.DeleteLoadBalancer(pb.DeleteLoadBalancerRequest(cluster=US, service=service, **more))


async def test_a_converged_ensure_writes_nothing_and_a_cleared_field_is_removed(ours):
    asked = service(load_balancer_source_ranges=["10.0.0.0/8"], ip_families=["IPv4", "IPv6"])
    made = await ensure(ours, service=asked, targets=targets("a", "b"))
    assert [point.ip for point in made.ready.status.ingress] == ["192.0.2.1", "2001:db8::1"]
    assert ours.writes() == 1
    assert (await get(ours, asked, targets=targets("a", "b"))).in_sync
    again = await ensure(ours, service=asked, handle=made.handle)  # Absent targets do not change the targets.
    assert (again.handle, again.ready, ours.writes()) == (made.handle, made.ready, 1)
    assert not (await get(ours)).in_sync
    await ensure(ours)
    [lb] = ours.content()["load_balancers"]
    assert "source_ranges" not in lb["config"] and lb["addresses"] == ["192.0.2.1"] and lb["targets"] == ["a", "b"]


async def test_a_service_that_cannot_be_served_is_invalid_and_the_field_is_named(ours):
    ports = [pb.ServicePort(protocol="TCP", port=80), pb.ServicePort(protocol="ICMP", port=80), pb.ServicePort(protocol="TCP", port=0)]
    wrong = {
        "ports": pb.ServiceView(name="s", uid="u"),
        "protocol": pb.ServiceView(name="s", uid="u", ports=[ports[1]]),
        "port 0": pb.ServiceView(name="s", uid="u", ports=[ports[2]]),
        "twice": pb.ServiceView(name="s", uid="u", ports=[ports[0], ports[0]]),
        "SourceRanges": service(load_balancer_source_ranges=["10.0.0.0"]),
        "ipFamilies": service(ip_families=["IPv5"]),
        "Class": service(load_balancer_class="other"),
        "loadBalancerIP": service(load_balancer_ip="here"),
    }
    for field, asked in wrong.items():
        failed = (await ensure(ours, service=asked)).failed
        assert code(failed) == "INVALID" and field in failed.message
    assert ours.writes() == 0


async def test_an_update_sets_the_targets_and_needs_a_load_balancer(ours):
    request = pb.UpdateLoadBalancerRequest(cluster=US, service=service(), targets=targets("c"))
    assert code((await ours.load_balancers.UpdateLoadBalancer(request)).failed) == "NOT_FOUND"
    await ensure(ours, targets=targets("a"))
    assert (await ours.load_balancers.UpdateLoadBalancer(request)).HasField("done")
    assert ours.content()["load_balancers"][0]["targets"] == ["c"]
    request.ClearField("targets")
    assert code((await ours.load_balancers.UpdateLoadBalancer(request)).failed) == "INVALID"


async def test_what_is_not_ours_is_not_touched(ours):
    made = await ensure(ours)
    await ours.initialize(THEM)
    assert code((await ensure(ours, THEM, service("uid-2"), handle=made.handle)).failed) == "CONFLICT"
    request = pb.DeleteLoadBalancerRequest(cluster=THEM, service=service("uid-2"), handle=made.handle)
    assert code((await ours.load_balancers.DeleteLoadBalancer(request)).failed) == "CONFLICT"
    assert ours.writes() == 1
    # A load balancer of a former owner ID is OURS. Ensure replaces the mark, with one write.
    await ours.initialize(THEM, previous=[US.owner_id])
    for _ in range(2):
        assert (await ensure(ours, THEM)).HasField("ready") and ours.writes() == 2
    assert ours.content()["load_balancers"][0]["owner"]["owner_id"] == "them"


async def test_an_unmarked_load_balancer_is_adopted_only_where_that_is_granted(ours):
    unmarked = {"handle": "lb-7", "name": "auid1", "addresses": ["192.0.2.9"], "targets": [], "config": {}}
    ours.edit(lambda content: content["load_balancers"].append(unmarked))
    assert (await get(ours)).ownership == types_pb2.OWNERSHIP_UNMARKED
    assert code((await ensure(ours)).failed) == "CONFLICT"
    adopted = await ensure(ours, adopt_unmarked=True)
    assert adopted.handle == "lb-7" and adopted.ready.status.ingress[0].ip == "192.0.2.9"
    assert ours.content()["load_balancers"][0]["owner"]["uid"] == "uid-1"


async def test_the_native_name_comes_before_an_address_of_the_status(ours):
    """LB-24: another owner's load balancer with the name comes last."""
    at = {"handle": "lb-1", "name": "by-hand", "addresses": ["192.0.2.9"], "targets": [], "config": {}}
    named = {"handle": "lb-2", "name": "auid1", "addresses": ["192.0.2.8"], "targets": [], "config": {}}
    foreign = named | {"handle": "lb-0", "owner": {"owner_id": "them", "namespace": "default", "name": "web", "uid": "uid-1"}}
    asked = service(status=pb.LoadBalancerStatus(ingress=[pb.LoadBalancerIngress(ip="192.0.2.9")]))
    for there, name, ownership in (
        ([at, named], "auid1", types_pb2.OWNERSHIP_UNMARKED),
        ([foreign, at, named], "auid1", types_pb2.OWNERSHIP_UNMARKED),
        ([foreign, at], "by-hand", types_pb2.OWNERSHIP_UNMARKED),
        ([foreign], "auid1", types_pb2.OWNERSHIP_FOREIGN),
    ):
        ours.edit(lambda content: content.update(load_balancers=there))
        found = await get(ours, asked)
        assert (found.load_balancer_name, found.ownership) == (name, ownership)


async def test_a_delete_finds_by_the_mark_and_is_done_where_nothing_is(ours):
    await ensure(ours)
    assert (await delete(ours, handle="lb-lost")).HasField("done")
    assert ours.content()["load_balancers"] == []
    assert (await delete(ours)).HasField("done") and ours.writes() == 2
    ours.weather(fail="UNAVAILABLE")
    assert code((await delete(ours)).failed) == "UNAVAILABLE"


async def test_a_delete_is_not_done_while_an_unmarked_load_balancer_remains(ours):
    """LB-26: it removes the Service's own load balancer, and then says that another one is left."""
    unmarked = {"handle": "lb-7", "name": "auid1", "addresses": ["192.0.2.9"], "targets": [], "config": {}}
    for adopt in (False, True):
        await ensure(ours)
        ours.edit(lambda content: content["load_balancers"].append(unmarked))
        first = await delete(ours, adopt_unmarked=adopt)
        assert first.HasField("pending") if adopt else code(first.failed) == "CONFLICT"
        assert [lb["handle"] for lb in ours.content()["load_balancers"]] == ["lb-7"]
        assert adopt or code((await delete(ours)).failed) == "CONFLICT"
        assert (await delete(ours, adopt_unmarked=True)).HasField("done")
        assert ours.content()["load_balancers"] == []


async def test_overlapping_calls_make_one_load_balancer(ours):
    ours.weather(slow_ms=300)
    answers = await asyncio.gather(*(ensure(ours) for _ in range(4)))
    outcomes = [answer.WhichOneof("outcome") for answer in answers]
    assert "ready" in outcomes and {code(answer.failed) for answer in answers if answer.HasField("failed")} <= {"BUSY"}
    assert ours.writes() == 1


async def test_a_call_of_the_former_owner_keeps_its_service_and_its_route(ours):
    """PROV-18: the call goes on after another Initialize, and CORE-7 holds for both owners."""
    ours.weather(slow_ms=10_000)
    route = route_pb2.Route(route_key="a", name_hint="n", destination_cidr="10.0.1.0/24", node_name="a")
    made = asyncio.ensure_future(ensure(ours))
    routed = asyncio.ensure_future(ours.routes.CreateRoutes(route_pb2.CreateRoutesRequest(cluster=US, routes=[route])))
    while len(ours.provider._held) < 2:
        await asyncio.sleep(0)
    ours.weather()
    await ours.initialize(THEM, previous=[US.owner_id])
    assert code((await ensure(ours, THEM)).failed) == "BUSY"
    again = await ours.routes.CreateRoutes(route_pb2.CreateRoutesRequest(cluster=THEM, routes=[route]))
    assert code(again.results[0].failed) == "BUSY"
    await made, await routed


async def test_a_call_that_is_cancelled_or_out_of_time_writes_nothing(ours):
    ours.weather(slow_ms=25_000)
    call = ours.load_balancers.EnsureLoadBalancer(pb.EnsureLoadBalancerRequest(cluster=US, service=service()))
    # Sent later on the same connection: when this is answered, the earlier call has arrived.
    await ours.info.Probe(provider_pb2.ProbeRequest(), timeout=20)
    call.cancel()
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await call
    request = pb.EnsureLoadBalancerRequest(cluster=US, service=service("uid-2"))
    assert (await ours.load_balancers.EnsureLoadBalancer(request, timeout=20)).HasField("pending")
    # A continued write would end before this one, which takes equally long and began later.
    await ensure(ours, service=service("uid-3"))
    assert ours.writes() == 1


async def test_what_takes_time_is_pending(ours):
    ours.provider.settings.provisioning_ms = 200
    made = await ensure(ours)
    assert made.HasField("pending") and made.handle
    while not (made := await ensure(ours, handle=made.handle)).HasField("ready"):
        await asyncio.sleep(0.05)
    # The load balancer decides, not what a new one would take now.
    ours.provider.settings.provisioning_ms = 0
    ours.edit(lambda cloud: cloud["load_balancers"][0].update(ready_at_ms=2**53))
    assert (await ensure(ours)).HasField("pending") and not (await get(ours)).in_sync
    ours.edit(lambda cloud: cloud["load_balancers"][0].update(ready_at_ms=0))
    assert (await ensure(ours)).HasField("ready")
    ours.provider.settings.provisioning_ms = 600_000
    assert (await delete(ours)).HasField("pending")
    assert (await get(ours)).presence == pb.LOAD_BALANCER_PRESENCE_REMNANTS
    ours.edit(lambda cloud: cloud["load_balancers"][0].update(gone_at_ms=1))
    assert (await delete(ours)).HasField("done")
    assert ours.writes() == 2


async def test_a_listing_shows_what_is_marked_for_us(ours):
    await ensure(ours)
    await ours.initialize(THEM)
    await ensure(ours, THEM, service("uid-2"))
    parts = [part async for part in ours.load_balancers.ListLoadBalancers(pb.ListLoadBalancersRequest(cluster=THEM))]
    assert [part.load_balancer.owners[0].uid for part in parts[:-1]] == ["uid-2"] and parts[-1].end.total == 1
