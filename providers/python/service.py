"""The common part of all services: the cluster of the provider, failures in answers, and locks on objects."""

import asyncio
import functools
import ipaddress
import logging
import uuid
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Callable, Iterable, Iterator

import grpc

from cloud import Cloud, CloudError
from cloudprovider.v1alpha1 import types_pb2 as types

log = logging.getLogger("provider")

#: The ID of the current call. The controller logs the same one.
call_id: ContextVar[str] = ContextVar("call_id", default="unknown")

NAME_BYTES = 253
ID_BYTES = 1024
TEXT_BYTES = 1024
MAX_BATCH = 500
#: The most items in one message of a listing.
CHUNK = 500


class Fail(Exception):
    """A failure in the body of an answer, never in the gRPC status (CORE-4). `code` is a name of FailureCode without its prefix."""

    def __init__(self, code: str, message: str, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after = code, reason or code.title().replace("_", ""), retry_after

    def to_proto(self) -> types.Failure:
        failure = types.Failure(
            code=types.FailureCode.Value(f"FAILURE_CODE_{self.code}"), reason=self.reason, message=shortened(str(self))
        )
        if self.retry_after is not None:
            failure.retry_after.FromTimedelta(timedelta(seconds=self.retry_after))
        return failure


def shortened(text: str) -> str:
    """At most 1,024 bytes (CORE-11), cut between characters."""
    return text.encode()[:TEXT_BYTES].decode(errors="ignore")


@dataclass(frozen=True)
class Owner:
    """The cluster that a call is for."""

    cluster_name: str
    owner_id: str
    previous: frozenset[str] = frozenset()
    #: The provider must write nothing to the cloud (PROV-20).
    read_only: bool = False

    def owns(self, owner_id: str) -> bool:
        return owner_id == self.owner_id or owner_id in self.previous


@dataclass
class Settings:
    """The identity of the provider. All providers of one cloud must have the same values."""

    name: str = "mock"
    prefix: str = "mock://"
    cloud_scope: str = "mock account, mock region"
    pools: tuple[str, ...] = ("192.0.2.0/24", "2001:db8::/112")
    #: The values of `spec.loadBalancerClass` that the provider serves, besides Services without a class.
    classes: tuple[str, ...] = ("mock.grpc-ccm.io/lb",)
    source_types: tuple[str, ...] = ("csi/disk.mock.grpc-ccm.io",)
    #: How long the creation and the deletion of a load balancer take, in milliseconds.
    provisioning_ms: int = 0


@dataclass
class Provider:
    """One provider process."""

    cloud: Cloud
    settings: Settings = field(default_factory=Settings)
    #: New for every process (PROV-7).
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    #: The cluster of the last successful Initialize.
    owner: Owner | None = None
    #: Set when the provider shuts down.
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    _held: set[str] = field(default_factory=set)

    def admit(self, cluster: types.ClusterRef) -> Owner:
        """The caller, if its cluster is the initialised one (CORE-10)."""
        if not cluster.owner_id or len(cluster.owner_id.encode()) > NAME_BYTES:
            raise Fail("INVALID", f"cluster.owner_id has {len(cluster.owner_id.encode())} bytes; right would be 1 to {NAME_BYTES}")
        if self.owner is None:
            raise Fail("NOT_INITIALIZED", "this provider process has not seen a successful Initialize")
        if self.owner.owner_id != cluster.owner_id:
            raise Fail("NOT_INITIALIZED", f"this provider is initialised for {self.owner.owner_id!r}, not for {cluster.owner_id!r}")
        return Owner(cluster.name, self.owner.owner_id, self.owner.previous, self.owner.read_only)

    @contextmanager
    def hold(self, what: str) -> Iterator[None]:
        """Allows one mutating call at a time for each object. A further call fails with BUSY (CORE-7). The owner ID does not count: after Initialize with another one, a call of the former owner may still work on the object (PROV-18)."""
        if what in self._held:
            raise Fail("BUSY", f"another call is in progress for {what}; ask again in a second", retry_after=1)
        self._held.add(what)
        try:
            yield
        finally:
            self._held.discard(what)


#: The RPCs that write to the cloud.
WRITES = {"EnsureLoadBalancer", "UpdateLoadBalancer", "DeleteLoadBalancer", "CreateRoutes", "DeleteRoutes"}


def may_write(rpc: str, owner: Owner) -> None:
    if owner.read_only and rpc in WRITES:
        raise Fail("PRECONDITION", f"{rpc} writes to the cloud, and this provider was initialised with read_only", "ReadOnly")


def failure_of(rpc: str, error: Exception) -> types.Failure:
    """Turns every exception into a failure of the contract. A bug of the provider is INTERNAL, and only the log gets more than the type of the exception (CORE-12)."""
    match error:
        case Fail():
            return error.to_proto()
        case CloudError(code=code):
            return Fail(code, str(error), retry_after=1 if code == "THROTTLED" else None).to_proto()
        case _:
            log.error("%s failed, call_id %s", rpc, call_id.get(), exc_info=error)
            return Fail("INTERNAL", f"a fault of the provider in {rpc}: {type(error).__name__}; its log says more").to_proto()


class CallIds(grpc.aio.ServerInterceptor):
    """Keeps the ID of each call. It cuts the ID, because other callers may send any length."""

    async def intercept_service(self, continuation: Callable, details: grpc.HandlerCallDetails) -> Any:
        ids = [value for key, value in details.invocation_metadata if key == "ccm-call-id"]
        call_id.set(str(ids[0])[:64] if ids else "unknown")
        return await continuation(details)


def unary(answer: Callable[[types.Failure], Any]) -> Callable:
    """For a method that gets (request, owner, context): admits the call, and puts failures into `answer`."""

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        async def call(self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
            try:
                owner = self.provider.admit(request.cluster)
                may_write(method.__name__, owner)
                return await method(self, request, owner, context)
            except Exception as error:  # CancelledError is no Exception: it ends the call.
                return answer(failure_of(method.__name__, error))

        return call

    return decorate


def listing(response: type, part: Callable[[list], Any] | None) -> Callable:
    """For a method that gives all items: sends them in parts, then the end with their number (CORE-16). Without `part` each item is a part itself."""

    def decorate(method: Callable) -> Callable:
        @functools.wraps(method)
        async def call(self: Any, request: Any, context: grpc.aio.ServicerContext) -> Any:
            try:
                # Gets all items first. So a failure in the middle never looks like a complete listing.
                items = list(await method(self, request, self.provider.admit(request.cluster)))
            except Exception as error:
                yield response(failed=failure_of(method.__name__, error))
                return
            if part is None:
                for item in items:
                    yield item
            else:
                for begin in range(0, len(items), CHUNK):
                    yield part(items[begin : begin + CHUNK])
            yield response(end=types.ListEnd(total=len(items)))

        return call

    return decorate


def within_batch(what: str, keys: Iterable[str]) -> None:
    keys = list(keys)
    if len(keys) > MAX_BATCH:
        raise Fail("INVALID", f"the request has {len(keys)} {what}, more than max_batch {MAX_BATCH}")
    if "" in keys and what != "route keys":
        raise Fail("INVALID", f"the request has one of its {what} empty; each needs its own name")
    if len(set(keys)) != len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Fail("INVALID", f"the request has {twice!r} twice among its {what}; each may occur once")


def pending(message: str, left_ms: int) -> types.Pending:
    pending = types.Pending(message=message)
    pending.retry_after.FromMilliseconds(max(left_ms, 1000))
    return pending


def is_cidr(text: str) -> bool:
    try:
        return "/" in text and bool(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return False


def network(cidr: str) -> str:
    """A CIDR in one form, so that all ways to write the same network are equal (ROUTE-8)."""
    return str(ipaddress.ip_network(cidr, strict=False)) if is_cidr(cidr) else cidr
