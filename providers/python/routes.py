"""RouteService."""

import asyncio
from typing import Any

from cloud import State, Write
from cloudprovider.v1alpha1 import route_pb2 as pb
from cloudprovider.v1alpha1 import route_pb2_grpc, types_pb2
from service import Fail, Owner, Provider, failure_of, is_cidr, listing, network, unary, within_batch

#: The most routes of one call that the provider handles at once.
AT_ONCE = 8
TARGET = ("node_name", "provider_id", "next_hop")
Route = dict[str, Any]


def is_blackhole(route: Route, state: State) -> bool:
    if provider_id := route.get("provider_id"):
        return provider_id not in state.by_provider_id
    if node_name := route.get("node_name"):
        return node_name not in state.by_name
    return not route.get("next_hop") and not route.get("gateway")


def same_target(one: Route, other: Route) -> bool:
    if one.get("provider_id") and other.get("provider_id"):
        return one["provider_id"] == other["provider_id"]
    return all(one.get(key) == other.get(key) for key in ("node_name", "next_hop"))


def ownership(route: Route, owner: Owner) -> int:
    match route.get("owner_id"):
        case None:
            return types_pb2.OWNERSHIP_UNMARKED
        case owner_id:
            return types_pb2.OWNERSHIP_OURS if owner.owns(owner_id) else types_pb2.OWNERSHIP_FOREIGN


def wanted(route: pb.Route, owner: Owner) -> Route:
    """The route that the cloud should have: marked, and named after the cluster, the hint and the destination (ROUTE-3)."""
    destination = "".join("-" if c in "/:." else c for c in route.destination_cidr)
    stored: Route = {"name": f"{owner.cluster_name}-{route.name_hint}-{destination}", "destination_cidr": route.destination_cidr}
    stored |= {key: getattr(route, key) for key in TARGET if route.HasField(key)}
    return stored | {"owner_id": owner.owner_id}


def plan_create(state: State, route: pb.Route, owner: Owner) -> Write | None:
    if not is_cidr(route.destination_cidr):
        raise Fail("INVALID", f"destination_cidr {route.destination_cidr!r} is not a CIDR; send one such as 10.0.1.0/24")
    new = wanted(route, owner)
    if is_blackhole(new, state):
        target = new.get("provider_id") or new.get("node_name") or ""
        raise Fail("PRECONDITION", f"the target {target!r} of the route to {route.destination_cidr} is no instance of this cloud", "InstanceMissing")
    to = network(route.destination_cidr)
    there = next((r for r in state.routes.values() if network(r["destination_cidr"]) == to), state.routes.get(new["name"]))
    if there is None:
        return Write(f"put route {new['name']} to {new['destination_cidr']}", routes={new["name"]: new})
    same_destination = network(there["destination_cidr"]) == to
    if same_destination and same_target(there, new) and ownership(there, owner) != types_pb2.OWNERSHIP_FOREIGN:
        return None  # The route has the right target. If it is unmarked, it stays unmarked (ROUTE-9).
    if ownership(there, owner) != types_pb2.OWNERSHIP_OURS:
        raise Fail("CONFLICT", f"the route {there['name']!r} to {there['destination_cidr']} was not made for this cluster; remove it or choose another CIDR")
    if same_destination and not is_blackhole(there, state):
        raise Fail("CONFLICT", f"the route {there['name']!r} leads {new['destination_cidr']} to another instance; delete it first", "DestinationTaken")
    return Write(f"put route {there['name']} to {new['destination_cidr']}", routes={there["name"]: {**new, "name": there["name"]}})


def plan_delete(state: State, route: pb.Route, owner: Owner) -> Write | None:
    cidr = route.destination_cidr
    if not route.name:
        raise Fail("INVALID", f"the route to {cidr} has no name; send it as ListRoutes gave it")
    there = state.routes.get(route.name)
    if there is None or network(there["destination_cidr"]) != network(cidr):
        return None
    if ownership(there, owner) == types_pb2.OWNERSHIP_FOREIGN:
        raise Fail("CONFLICT", f"the route {there['name']!r} to {cidr} is marked for another owner")
    return Write(f"remove route {there['name']}", routes={there["name"]: None})


class Routes(route_pb2_grpc.RouteServiceServicer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @listing(pb.ListRoutesResponse, lambda part: pb.ListRoutesResponse(routes=pb.RouteList(routes=part)))
    async def ListRoutes(self, request: pb.ListRoutesRequest, owner: Owner) -> list[pb.Route]:
        state = await self.provider.cloud.read()
        return [
            pb.Route(
                name=route["name"],
                destination_cidr=route["destination_cidr"],
                blackhole=is_blackhole(route, state),
                ownership=ownership(route, owner),
                **{key: route[key] for key in TARGET if route.get(key) is not None},
            )
            for route in state.routes.values()
        ]

    @unary(lambda failure: pb.CreateRoutesResponse(failed=failure))
    async def CreateRoutes(self, request: pb.CreateRoutesRequest, owner: Owner, context: Any) -> pb.CreateRoutesResponse:
        return pb.CreateRoutesResponse(results=await self._each(request.routes, owner, plan_create))

    @unary(lambda failure: pb.DeleteRoutesResponse(failed=failure))
    async def DeleteRoutes(self, request: pb.DeleteRoutesRequest, owner: Owner, context: Any) -> pb.DeleteRoutesResponse:
        return pb.DeleteRoutesResponse(results=await self._each(request.routes, owner, plan_delete))

    async def _each(self, routes: Any, owner: Owner, plan: Any) -> list[pb.RouteResult]:
        """Writes each route separately, a few at once. If the call is cancelled, each of them ends before its next write."""
        within_batch("route keys", (route.route_key for route in routes))
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(route: pb.Route) -> pb.RouteResult:
            try:
                async with turns:
                    with self.provider.hold(f"the route to {network(route.destination_cidr)}"):
                        await self.provider.cloud.write(lambda state: (None, plan(state, route, owner)))
                return pb.RouteResult(route_key=route.route_key, done=types_pb2.Done())
            except Exception as error:  # One route's error does not fail the others (ROUTE-2).
                return pb.RouteResult(route_key=route.route_key, failed=failure_of("Routes", error))

        # Routes to one destination run one after the other: the second sees the result of the first (ROUTE-13).
        async def several(routes: list[pb.Route]) -> list[pb.RouteResult]:
            return [await one(route) for route in routes]

        by_destination: dict[str, list[pb.Route]] = {}
        for route in routes:
            by_destination.setdefault(network(route.destination_cidr), []).append(route)
        answered = await asyncio.gather(*(several(routes) for routes in by_destination.values()))
        return [result for results in answered for result in results]
