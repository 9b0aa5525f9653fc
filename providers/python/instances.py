"""InstanceService and ZoneService."""

import re
from typing import Any

from cloud import State
from cloudprovider.v1alpha1 import instance_pb2 as pb
from cloudprovider.v1alpha1 import instance_pb2_grpc, types_pb2, zone_pb2, zone_pb2_grpc
from service import ID_BYTES, NAME_BYTES, Fail, Owner, Provider, failure_of, listing, log, unary, within_batch

#: The form of a label's value that is not empty.
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
#: One label of a DNS name (RFC 1123).
DNS_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?")

ADDRESS_TYPES = {
    "Hostname": types_pb2.NODE_ADDRESS_TYPE_HOSTNAME,
    "InternalIP": types_pb2.NODE_ADDRESS_TYPE_INTERNAL_IP,
    "ExternalIP": types_pb2.NODE_ADDRESS_TYPE_EXTERNAL_IP,
    "InternalDNS": types_pb2.NODE_ADDRESS_TYPE_INTERNAL_DNS,
    "ExternalDNS": types_pb2.NODE_ADDRESS_TYPE_EXTERNAL_DNS,
}
IP_TYPES = (types_pb2.NODE_ADDRESS_TYPE_INTERNAL_IP, types_pb2.NODE_ADDRESS_TYPE_EXTERNAL_IP)
STATES = {
    "running": pb.INSTANCE_STATE_RUNNING,
    "stopped": pb.INSTANCE_STATE_STOPPED,
    "unknown": pb.INSTANCE_STATE_PRESENT,
    "pending": pb.INSTANCE_STATE_PENDING,
    "unmanaged": pb.INSTANCE_STATE_UNMANAGED,
}


class Instances(instance_pb2_grpc.InstanceServiceServicer, zone_pb2_grpc.ZoneServiceServicer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @unary(lambda failure: pb.LookupInstancesResponse(failed=failure))
    async def LookupInstances(self, request: pb.LookupInstancesRequest, owner: Owner, context: Any) -> pb.LookupInstancesResponse:
        within_batch("nodes", (node.name for node in request.nodes))
        # At most one operation of the cloud for all Nodes. The state is complete: an instance that is not in it does not exist (INST-1).
        state = await self.provider.cloud.read(request.max_age.ToTimedelta().total_seconds())
        response = pb.LookupInstancesResponse()
        for node in request.nodes:
            result = response.results.add(node_name=node.name, node_uid=node.uid)
            try:
                result.found.CopyFrom(self._found(state, node, pb.INSTANCE_FACET_METADATA in request.facets))
            except Exception as error:  # One Node's error does not fail the others (INST-4).
                result.failed.CopyFrom(failure_of("LookupInstances", error))
        return response

    @listing(pb.ListInstancesResponse, lambda part: pb.ListInstancesResponse(instances=pb.InstanceList(instances=part)))
    async def ListInstances(self, request: pb.ListInstancesRequest, owner: Owner) -> list[pb.Instance]:
        state = await self.provider.cloud.read()
        metadata = pb.INSTANCE_FACET_METADATA in request.facets
        shown = (i for i in state.instances if i.get("power", "running") not in ("pending", "unmanaged"))
        return [to_proto(instance, metadata) for instance in shown]

    @unary(lambda failure: zone_pb2.LookupZonesResponse(failed=failure))
    async def LookupZones(self, request: zone_pb2.LookupZonesRequest, owner: Owner, context: Any) -> zone_pb2.LookupZonesResponse:
        within_batch("nodes", (node.name for node in request.nodes))
        state = await self.provider.cloud.read()
        response = zone_pb2.LookupZonesResponse()
        for node in request.nodes:
            result = response.results.add(node_name=node.name, node_uid=node.uid)
            try:
                found = self._found(state, node, metadata=True)
                result.zone.SetInParent()  # Set even without fields, also for an unknown Node (ZONE-4).
                for name in ("zone", "region"):
                    if found.HasField(name):
                        setattr(result.zone, name, getattr(found, name))
            except Exception as error:
                result.failed.CopyFrom(failure_of("LookupZones", error))
        return response

    def _found(self, state: State, node: types_pb2.NodeView, metadata: bool) -> pb.Instance:
        """The cloud's answer about a Node: by its provider ID if it has one, else by its name (INST-3)."""
        prefix = self.provider.settings.prefix
        if not node.HasField("provider_id"):
            instance = state.by_name.get(node.name)
        elif not node.provider_id.startswith(prefix):
            return pb.Instance(state=pb.INSTANCE_STATE_UNMANAGED)
        elif not len(prefix) < len(node.provider_id.encode()) <= ID_BYTES:
            raise Fail("INVALID", f"the provider ID {node.provider_id[:64]!r} has {len(node.provider_id.encode())} bytes and is not one of this cloud's")
        else:
            instance = state.by_provider_id.get(node.provider_id)
        if instance is None:
            return pb.Instance(state=pb.INSTANCE_STATE_ABSENT)
        return to_proto(instance, metadata)


def to_proto(instance: dict[str, Any], metadata: bool) -> pb.Instance:
    shown = pb.Instance(state=STATES[instance.get("power", "running")])
    if shown.state == pb.INSTANCE_STATE_PENDING:
        shown.retry_after.FromSeconds(1)
    if shown.state in (pb.INSTANCE_STATE_PENDING, pb.INSTANCE_STATE_UNMANAGED):
        return shown
    shown.provider_id = instance["provider_id"]
    if metadata:
        for field, name in (("instance_type", "type"), ("zone", "zone"), ("region", "region")):
            value = instance.get(name)
            if value is None:
                continue
            if LABEL_VALUE.fullmatch(value):
                setattr(shown, field, value)
            else:  # INST-15: leave out values that the contract cannot express.
                log.warning("instance %s: its %s %r is no label value and is left out", shown.provider_id, name, value)
        for address in addresses_to(instance.get("addresses", [])):
            if address.type in IP_TYPES or is_dns_name(address.address):
                shown.addresses.append(address)
            else:
                log.warning("instance %s: its address %r is no DNS name and is left out", shown.provider_id, address.address)
        shown.labels.update(instance.get("labels", {}))
    return shown


def is_dns_name(text: str) -> bool:
    return len(text) <= NAME_BYTES and all(DNS_LABEL.fullmatch(label) for label in text.split("."))


def addresses_to(addresses: list[dict[str, str]]) -> list[types_pb2.NodeAddress]:
    return [types_pb2.NodeAddress(type=ADDRESS_TYPES[kind], address=text) for entry in addresses for kind, text in entry.items()]


def addresses_from(addresses: Any) -> list[dict[str, str]]:
    names = {number: name for name, number in ADDRESS_TYPES.items()}
    return [{names[address.type]: address.address} for address in addresses if address.type in names]
