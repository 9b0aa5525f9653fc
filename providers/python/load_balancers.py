"""LoadBalancerService. Decisions are plain functions of the cloud's state, the Service and the caller; the servicer applies them."""

import asyncio
import functools
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from cloud import State, Write
from cloudprovider.v1alpha1 import load_balancer_pb2 as pb
from cloudprovider.v1alpha1 import load_balancer_pb2_grpc, types_pb2
from service import Fail, Owner, Provider, Settings, is_cidr, listing, pending, unary

#: The prefix of the annotations of a Service that this cloud supports.
ANNOTATIONS = "mock.grpc-ccm.io/"
#: The part of a call's time after which it answers `pending` (CORE-9).
SHARE = 0.75
LoadBalancer = dict[str, Any]


@dataclass(frozen=True)
class Asker:
    """The caller, and its Service."""

    owner: Owner
    service: pb.ServiceView
    handle: str

    def ownership(self, lb: LoadBalancer) -> int:
        mark = lb.get("owner")
        if mark is None:
            return types_pb2.OWNERSHIP_UNMARKED
        ours = mark["uid"] == self.service.uid and self.owner.owns(mark["owner_id"])
        return types_pb2.OWNERSHIP_OURS if ours else types_pb2.OWNERSHIP_FOREIGN

    def mark(self) -> dict[str, str]:
        service = self.service
        return {"owner_id": self.owner.owner_id, "namespace": service.namespace, "name": service.name, "uid": service.uid}


def native_name(uid: str) -> str:
    return f"a{uid.replace('-', '')}"[:32]


def config_of(service: pb.ServiceView) -> dict[str, Any]:
    """The load balancer that the Service asks for, without fields that the user cleared (LB-7)."""
    affinity, policy = service.session_affinity, service.external_traffic_policy
    if affinity == "ClientIP" and service.HasField("session_affinity_timeout"):
        affinity += f":{service.session_affinity_timeout.seconds}"
    if policy == "Local" and service.HasField("health_check_node_port"):
        policy += f":{service.health_check_node_port}"
    ports = [f"{p.name}:{p.protocol}:{p.port}:{p.node_port if p.HasField('node_port') else ''}:{p.app_protocol}" for p in service.ports]
    config: dict[str, Any] = {"session_affinity": affinity, "external_traffic_policy": policy}
    optional = {
        "ports": ports,
        "source_ranges": list(service.load_balancer_source_ranges),
        "class": service.load_balancer_class if service.HasField("load_balancer_class") else None,
        "annotations": {key: value for key, value in sorted(service.annotations.items()) if key.startswith(ANNOTATIONS)},
    }
    return config | {key: value for key, value in optional.items() if value not in (None, [], {})}


def check(service: pb.ServiceView, settings: Settings) -> None:
    """INVALID if a field has a value that no load balancer can have: the text names the field."""

    def one_of(field: str, value: str, known: tuple[str, ...]) -> None:
        if value not in known:
            raise Fail("INVALID", f"spec.{field} {value!r} is none of {', '.join(known)}")

    if not service.ports:
        raise Fail("INVALID", "spec.ports is empty; a load balancer listens on at least one port")
    listeners = [(port.protocol, port.port) for port in service.ports]
    for port in service.ports:
        one_of("ports[].protocol", port.protocol, ("TCP", "UDP", "SCTP"))
        for field, number in (("port", port.port), ("nodePort", port.node_port if port.HasField("node_port") else 1)):
            if not 1 <= number <= 65_535:
                raise Fail("INVALID", f"spec.ports[].{field} {number} is not within 1 to 65535")
        if listeners.count((port.protocol, port.port)) > 1:
            raise Fail("INVALID", f"spec.ports has {port.protocol} {port.port} twice; a load balancer listens once on it")
    for cidr in service.load_balancer_source_ranges:
        if not is_cidr(cidr):
            raise Fail("INVALID", f"spec.loadBalancerSourceRanges {cidr!r} is not a CIDR; write one such as 192.0.2.0/24")
    one_of("sessionAffinity", service.session_affinity or "None", ("None", "ClientIP"))
    one_of("externalTrafficPolicy", service.external_traffic_policy or "Cluster", ("Cluster", "Local"))
    for family in service.ip_families:
        one_of("ipFamilies", family, ("IPv4", "IPv6"))
    if service.HasField("load_balancer_class"):
        one_of("loadBalancerClass", service.load_balancer_class, settings.classes)


def find_own(state: State, asker: Asker) -> LoadBalancer | None:
    """The Service's own load balancer: by the handle, which a user can edit (LB-4), else by the mark (LB-5)."""
    living = state.living()
    if named := living.get(asker.handle):
        if asker.ownership(named) != types_pb2.OWNERSHIP_OURS:
            raise not_ours(named, asker)
        return named
    return next((lb for lb in living.values() if asker.ownership(lb) == types_pb2.OWNERSHIP_OURS), None)


def find_to_delete(state: State, asker: Asker, adopt: bool) -> LoadBalancer | None:
    """The Service's own load balancer, else an unmarked one with the Service's native name. Without the grant an unmarked one is a CONFLICT, never `done` (LB-26). With the grant the unmarked one comes first if the handle names it."""
    living = state.living()
    unmarked = [lb for lb in living.values() if lb.get("owner") is None and lb["name"] == native_name(asker.service.uid)]
    if adopt and (named := living.get(asker.handle)) in unmarked:
        return named
    if own := find_own(state, asker):
        return own
    if unmarked and not adopt:
        raise not_ours(unmarked[0], asker)
    return unmarked[0] if unmarked else None


def find(state: State, asker: Asker) -> LoadBalancer | None:
    """The load balancer that Ensure has to use, adopt or refuse (LB-9). The search goes by the handle, then by the mark, then among the unmarked ones by the native name, and then by an address in the Service's status (LB-24). Another owner's with the native name comes last."""
    living = state.living()
    if named := living.get(asker.handle):
        return named
    if own := find_own(state, asker):
        return own
    points = asker.service.status.ingress
    reached_at = {point.ip for point in points if point.ip} | {point.hostname for point in points if point.hostname}
    named = [lb for lb in living.values() if lb["name"] == native_name(asker.service.uid)]
    at = [lb for lb in living.values() if reached_at & {*lb.get("addresses", []), lb.get("hostname")}]
    unmarked = [lb for lb in named + at if lb.get("owner") is None]
    return next(iter(unmarked + named), None)


def not_ours(lb: LoadBalancer, asker: Asker) -> Fail:
    whose = "carries no mark: grant its adoption, or remove it"
    if mark := lb.get("owner"):
        whose = f"is marked for Service {mark['namespace']}/{mark['name']} (uid {mark['uid']}) of owner {mark['owner_id']}"
    return Fail("CONFLICT", f"load balancer {lb['handle']} ({lb['name']}) is not that of Service {name_of(asker.service)}: it {whose}")


def wanted(state: State, asker: Asker, targets: list[str] | None, adopt: bool, settings: Settings) -> tuple[LoadBalancer | None, LoadBalancer]:
    """The existing load balancer, and the desired one; both are equal if no write is needed (LB-8)."""
    check(asker.service, settings)
    found = find(state, asker)
    if found is not None and asker.ownership(found) != types_pb2.OWNERSHIP_OURS:
        if found.get("owner") is not None or not adopt:
            raise not_ours(found, asker)
    lb = dict(found or {"handle": "", "name": native_name(asker.service.uid), "targets": []})
    lb["config"] = config_of(asker.service)
    if targets is not None:  # An absent set does not change the targets (LB-10).
        lb["targets"] = targets
    lb.pop("remnant", None)
    lb["addresses"] = addresses_for(state, asker.service, lb, settings)
    lb["owner"] = asker.mark()  # A mark with a previous owner ID counts as a difference (LB-25).
    return found, lb


def addresses_for(state: State, service: pb.ServiceView, lb: LoadBalancer, settings: Settings) -> list[str]:
    """One address of each family of the Service. With PreferDualStack and two families, a family without a pool gets none. An existing address stays, unless the Service asks for another."""
    pools = [ipaddress.ip_network(pool) for pool in settings.pools]
    families = [6 if family == "IPv6" else 4 for family in service.ip_families] or [4]
    if service.ip_family_policy == "PreferDualStack" and len(families) > 1:
        families = [family for family in families if any(pool.version == family for pool in pools)]
    try:
        asked = ipaddress.ip_address(service.load_balancer_ip) if service.load_balancer_ip else None
    except ValueError:
        raise Fail("INVALID", f"spec.loadBalancerIP {service.load_balancer_ip!r} is not an IP address; write one such as 192.0.2.1") from None
    taken = {address for other in state.living().values() if other["handle"] != lb["handle"] for address in other.get("addresses", [])}
    kept = {ipaddress.ip_address(address).version: address for address in lb.get("addresses", [])}
    addresses = []
    for family in families:
        of_family = [pool for pool in pools if pool.version == family]
        if asked is not None and asked.version == family:
            if str(asked) != kept.get(family) and not any(asked in pool for pool in of_family):
                raise Fail("PRECONDITION", f"spec.loadBalancerIP {asked} is in none of the cloud's address pools", "AddressNotInPool")
            if str(asked) in taken:
                raise Fail("CONFLICT", f"spec.loadBalancerIP {asked} is another load balancer's", "AddressTaken")
            addresses.append(str(asked))
        elif family in kept:
            addresses.append(kept[family])
        else:
            free = (str(address) for pool in of_family for address in pool.hosts() if str(address) not in taken)
            if (address := next(free, None)) is None:
                raise Fail("PRECONDITION", f"no IPv{family} address is left for load balancers; delete one or add a pool", "AddressPoolExhausted")
            addresses.append(address)
    return addresses


def targets_of(request: Any) -> list[str] | None:
    if not request.HasField("targets"):
        return None
    if request.targets.WhichOneof("set") != "inline":
        raise Fail("INVALID", "the targets are not inline; this minor of the contract has no other form")
    return list(dict.fromkeys(node.name for node in request.targets.inline.nodes))  # Each once, in their order.


def status_of(lb: LoadBalancer) -> pb.LoadBalancerStatus:
    return pb.LoadBalancerStatus(ingress=[pb.LoadBalancerIngress(ip=ip, ip_mode=pb.IP_MODE_VIP) for ip in lb.get("addresses", [])])


def name_of(service: pb.ServiceView) -> str:
    return f"{service.namespace}/{service.name}"


def says(service: pb.ServiceView, annotation: str) -> bool:
    return service.annotations.get(ANNOTATIONS + annotation) == "true"


def mutating(response: type) -> Callable:
    """For a method (asker, request) -> response: runs one call at a time for each Service, and answers `pending` if the time runs out."""

    def decorate(method: Callable) -> Callable:
        @unary(lambda failure: response(failed=failure))
        @functools.wraps(method)
        async def call(self: Any, request: Any, owner: Owner, context: grpc.aio.ServicerContext) -> Any:
            asker = asker_of(request, owner)
            if says(asker.service, "handled-elsewhere"):
                return response(handled_elsewhere=types_pb2.HandledElsewhere())
            left = context.time_remaining()
            with self.provider.hold(f"the load balancer of Service {asker.service.uid}"):
                try:
                    # If the time runs out, the call writes nothing more. The next call continues from the current state.
                    async with asyncio.timeout(None if left is None else left * SHARE):
                        return await method(self, asker, request)
                except TimeoutError:
                    return response(pending=pending("the cloud has not answered yet", 5_000))

        return call

    return decorate


def asker_of(request: Any, owner: Owner) -> Asker:
    if not request.service.name:
        raise Fail("INVALID", f"the service with the uid {request.service.uid!r} has no name")
    if not request.service.uid:
        raise Fail("INVALID", f"service {name_of(request.service)} has no uid; the load balancer is identified by it")
    return Asker(owner, request.service, request.handle)


class LoadBalancers(load_balancer_pb2_grpc.LoadBalancerServiceServicer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @unary(lambda failure: pb.GetLoadBalancerResponse(failed=failure))
    async def GetLoadBalancer(self, request: pb.GetLoadBalancerRequest, owner: Owner, context: Any) -> pb.GetLoadBalancerResponse:
        asker, targets = asker_of(request, owner), targets_of(request)
        state = await self.provider.cloud.read()
        lb = find(state, asker)
        if lb is None:
            return pb.GetLoadBalancerResponse(found=pb.LoadBalancer(presence=pb.LOAD_BALANCER_PRESENCE_ABSENT))
        found = pb.LoadBalancer(ownership=asker.ownership(lb), load_balancer_name=lb["name"])
        if lb.get("remnant") or "gone_at_ms" in lb:
            found.presence = pb.LOAD_BALANCER_PRESENCE_REMNANTS
        else:
            found.presence = pb.LOAD_BALANCER_PRESENCE_PRESENT
            found.status.CopyFrom(status_of(lb))
            found.in_sync = self._in_sync(state, asker, targets)
        response = pb.GetLoadBalancerResponse(found=found)
        if found.ownership == types_pb2.OWNERSHIP_OURS:
            response.handle = lb["handle"]
        return response

    def _in_sync(self, state: State, asker: Asker, targets: list[str] | None) -> bool:
        """Whether Ensure would write nothing and answer `ready` (LB-14): it makes the same decision without the write."""
        try:
            found, lb = wanted(state, asker, targets, False, self.provider.settings)
        except Fail:
            return False
        return found == lb and lb.get("ready_at_ms", 0) <= state.now_ms() and not says(asker.service, "handled-elsewhere")

    @mutating(pb.EnsureLoadBalancerResponse)
    async def EnsureLoadBalancer(self, asker: Asker, request: pb.EnsureLoadBalancerRequest) -> pb.EnsureLoadBalancerResponse:
        settings, targets = self.provider.settings, targets_of(request)

        def decide(state: State) -> tuple[pb.EnsureLoadBalancerResponse, Write | None]:
            found, lb = wanted(state, asker, targets, request.adopt_unmarked, settings)
            if "gone_at_ms" in lb:
                left = lb["gone_at_ms"] - state.now_ms()
                return pb.EnsureLoadBalancerResponse(handle=lb["handle"], pending=pending("the former load balancer is being deleted", left)), None
            write, number = None, 0
            if found is None:
                number = state.last_number + 1
                lb |= {"handle": f"lb-{number}", "ready_at_ms": state.now_ms() + settings.provisioning_ms}
            if found != lb:
                line = f"{'change' if found else 'create'} load balancer {lb['handle']} of {name_of(asker.service)}"
                write = Write(line, load_balancers={lb["handle"]: lb}, last_number=number)
            response = pb.EnsureLoadBalancerResponse(handle=lb["handle"])
            left = lb.get("ready_at_ms", 0) - state.now_ms()
            if left > 0:
                response.pending.CopyFrom(pending("the load balancer is being made", left))
            else:
                response.ready.status.CopyFrom(status_of(lb))
            return response, write

        return await self.provider.cloud.write(decide)

    @mutating(pb.UpdateLoadBalancerResponse)
    async def UpdateLoadBalancer(self, asker: Asker, request: pb.UpdateLoadBalancerRequest) -> pb.UpdateLoadBalancerResponse:
        if (targets := targets_of(request)) is None:
            raise Fail("INVALID", "the request has no targets; an update is about nothing else")

        def decide(state: State) -> tuple[pb.UpdateLoadBalancerResponse, Write | None]:
            lb = find_own(state, asker)
            if lb is None or lb.get("remnant") or "gone_at_ms" in lb:
                raise Fail("NOT_FOUND", f"Service {name_of(asker.service)} has no load balancer")
            response = pb.UpdateLoadBalancerResponse(handle=lb["handle"], done=types_pb2.Done())
            if lb.get("targets", []) == targets:
                return response, None
            line = f"set the {len(targets)} targets of load balancer {lb['handle']}"
            return response, Write(line, load_balancers={lb["handle"]: {**lb, "targets": targets, "owner": asker.mark()}})

        return await self.provider.cloud.write(decide)

    @mutating(pb.DeleteLoadBalancerResponse)
    async def DeleteLoadBalancer(self, asker: Asker, request: pb.DeleteLoadBalancerRequest) -> pb.DeleteLoadBalancerResponse:
        takes = self.provider.settings.provisioning_ms

        def decide(state: State) -> tuple[pb.DeleteLoadBalancerResponse, Write | None]:
            lb = find_to_delete(state, asker, request.adopt_unmarked)
            if lb is None:
                return pb.DeleteLoadBalancerResponse(done=types_pb2.Done()), None
            if says(asker.service, "retain"):
                reason = f"load balancer {lb['handle']} is kept: the annotation {ANNOTATIONS}retain asks for it"
                return pb.DeleteLoadBalancerResponse(handle=lb["handle"], retained=pb.Retained(reason=reason)), None
            gone_at, write = lb.get("gone_at_ms"), None
            if gone_at is None:
                gone_at = state.now_ms() + takes
                left = {**lb, "gone_at_ms": gone_at} if takes else None
                write = Write(f"delete load balancer {lb['handle']}", load_balancers={lb["handle"]: left})
            if gone_at > state.now_ms():
                waits = pending("the load balancer is being deleted", gone_at - state.now_ms())
                return pb.DeleteLoadBalancerResponse(handle=lb["handle"], pending=waits), write
            # Delete is not done while another load balancer of this Service remains. An unmarked one without the grant is CONFLICT (LB-26).
            try:
                other = find_to_delete(state.without(lb["handle"]), asker, request.adopt_unmarked)
            except Fail as fail:
                return pb.DeleteLoadBalancerResponse(failed=fail.to_proto()), write
            if other is not None:
                return pb.DeleteLoadBalancerResponse(pending=pending("another load balancer of this Service is deleted next", 0)), write
            return pb.DeleteLoadBalancerResponse(done=types_pb2.Done()), write

        return await self.provider.cloud.write(decide)

    @listing(pb.ListLoadBalancersResponse, None)
    async def ListLoadBalancers(self, request: pb.ListLoadBalancersRequest, owner: Owner) -> list[pb.ListLoadBalancersResponse]:
        state = await self.provider.cloud.read()
        return [
            pb.ListLoadBalancersResponse(
                load_balancer=pb.ListedLoadBalancer(
                    load_balancer_name=lb["name"],
                    handle=lb["handle"],
                    owners=[pb.ServiceRef(namespace=mark["namespace"], name=mark["name"], uid=mark["uid"])],
                )
            )
            for lb in state.living().values()
            if (mark := lb.get("owner")) and owner.owns(mark["owner_id"])
        ]
