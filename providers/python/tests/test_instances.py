from conftest import THEM, US, instance

from cloudprovider.v1alpha1 import instance_pb2 as pb
from cloudprovider.v1alpha1 import types_pb2, zone_pb2


async def states(harness, nodes, cluster=US, **more):
    request = pb.LookupInstancesRequest(cluster=cluster, nodes=nodes, **more)
    response = await harness.instances.LookupInstances(request)
    if response.HasField("failed"):
        return types_pb2.FailureCode.Name(response.failed.code)
    assert [(r.node_name, r.node_uid) for r in response.results] == [(n.name, n.uid) for n in nodes]
    return [pb.InstanceState.Name(r.found.state)[len("INSTANCE_STATE_") :] if r.HasField("found") else "failed" for r in response.results]


def node(name, provider_id=None):
    return types_pb2.NodeView(name=name, uid=f"uid-{name}", provider_id=provider_id)


async def test_a_node_is_found_by_provider_id_and_else_by_name(ours):
    ours.edit(lambda content: content["instances"].extend([instance("p", power="pending"), instance("s", power="stopped")]))
    nodes = [node("a"), node("renamed", "mock://zone-a/b"), node("x"), node("c", "mock://zone-a/gone"), node("y", "aws://i-1"), node("p"), node("s")]
    assert await states(ours, nodes) == ["RUNNING", "RUNNING", "ABSENT", "ABSENT", "UNMANAGED", "PENDING", "STOPPED"]


async def test_a_name_that_is_no_dns_name_is_left_out(ours):
    """INST-8, INST-15: the instance keeps its other addresses."""
    names = ["Host-1.example", "a_b", "a..b", "-a", "a" * 254, ""]
    addresses = [{"InternalIP": "10.0.0.1"}] + [{"Hostname": name} for name in names]
    ours.edit(lambda content: content["instances"].append(instance("d", addresses=addresses)))
    request = pb.LookupInstancesRequest(cluster=US, nodes=[node("d")], facets=[pb.INSTANCE_FACET_METADATA])
    [result] = (await ours.instances.LookupInstances(request)).results
    assert [address.address for address in result.found.addresses] == ["10.0.0.1", "Host-1.example"]


async def test_one_nodes_trouble_is_not_the_others(ours):
    assert await states(ours, [node("a"), node("b", "mock://")]) == ["RUNNING", "failed"]


async def test_a_cloud_that_fails_or_is_lost_never_says_absent(ours):
    for code in ("THROTTLED", "CREDENTIALS", "UNAVAILABLE"):
        ours.weather(fail=code)
        assert await states(ours, [node("a"), node("gone")]) == f"FAILURE_CODE_{code}"
    ours.weather(fail=None)
    ours.state.write_text("{")
    assert await states(ours, [node("a")]) == "FAILURE_CODE_UNAVAILABLE"
    ours.state.unlink()
    assert await states(ours, [node("a")]) == "FAILURE_CODE_UNAVAILABLE"


async def test_the_cache_is_used_only_within_max_age(ours):
    assert await states(ours, [node("a")]) == ["RUNNING"]
    ours.weather(fail="UNAVAILABLE")
    request = pb.LookupInstancesRequest(cluster=US, nodes=[node("a")])
    request.max_age.FromSeconds(600)
    assert (await ours.instances.LookupInstances(request)).results[0].found.state == pb.INSTANCE_STATE_RUNNING
    assert await states(ours, [node("a")]) == "FAILURE_CODE_UNAVAILABLE"


async def test_a_batch_is_refused_where_it_is_too_large_or_names_a_node_twice(ours):
    assert await states(ours, [node(f"n-{n}") for n in range(501)]) == "FAILURE_CODE_INVALID"
    assert await states(ours, [node("a"), node("a")]) == "FAILURE_CODE_INVALID"


async def test_nothing_is_answered_before_initialize_or_to_another_owner(cloud):
    assert await states(cloud, [node("a")]) == "FAILURE_CODE_NOT_INITIALIZED"
    await cloud.initialize()
    assert await states(cloud, [node("a")], cluster=THEM) == "FAILURE_CODE_NOT_INITIALIZED"
    assert await states(cloud, [node("a")], cluster=types_pb2.ClusterRef(name="test")) == "FAILURE_CODE_INVALID"


async def test_a_listing_is_complete_and_ends(ours):
    ours.edit(lambda content: content["instances"].extend(instance(f"n-{n}") for n in range(1_200)))
    parts = [part async for part in ours.instances.ListInstances(pb.ListInstancesRequest(cluster=US, facets=[pb.INSTANCE_FACET_METADATA]))]
    listed = [i for part in parts[:-1] for i in part.instances.instances]
    assert parts[-1].end.total == len(listed) == 1_203
    first = listed[0]
    assert (first.provider_id, first.instance_type, first.zone, first.addresses[0].address) == ("mock://zone-a/a", "mock.large", "zone-a", "10.0.0.1")
    ours.weather(fail="THROTTLED")
    [failed] = [part async for part in ours.instances.ListInstances(pb.ListInstancesRequest(cluster=US))]
    assert failed.failed.code == types_pb2.FAILURE_CODE_THROTTLED and failed.failed.retry_after.seconds == 1


async def test_zones_are_told_and_what_is_not_known_is_left_out(ours):
    request = zone_pb2.LookupZonesRequest(cluster=US, nodes=[node("a"), node("x")])
    here, nowhere = (await ours.zones.LookupZones(request)).results
    assert (here.zone.zone, here.zone.region) == ("zone-a", "region-1")
    assert nowhere.HasField("zone") and not nowhere.zone.HasField("zone")


async def test_a_fault_of_the_provider_is_logged_with_the_id_of_the_call(ours, monkeypatch, caplog):
    async def broken(*_args, **_more):
        raise RuntimeError("a bug")

    monkeypatch.setattr(ours.provider.cloud, "read", broken)
    request = pb.LookupInstancesRequest(cluster=US, nodes=[types_pb2.NodeView(name="a")])
    response = await ours.instances.LookupInstances(request, metadata=[("ccm-call-id", "5f3c-7")])
    assert response.failed.code == types_pb2.FAILURE_CODE_INTERNAL
    assert "LookupInstances failed, call_id 5f3c-7" in caplog.messages
