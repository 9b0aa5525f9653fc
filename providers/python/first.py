"""A first provider: it reads machines from a file, without a cloud. Their Nodes get addresses, types and zones.

    echo 'node-1,10.0.0.5,8-cores,rack-a' > machines.csv
    python first.py machines.csv unix:///tmp/machines/provider.sock
"""

import asyncio
import re
import signal
import sys
import uuid
from pathlib import Path

import grpc

from cloudprovider.v1alpha1 import instance_pb2 as instance
from cloudprovider.v1alpha1 import instance_pb2_grpc, provider_pb2_grpc
from cloudprovider.v1alpha1 import provider_pb2 as provider
from cloudprovider.v1alpha1 import types_pb2 as types
from socket_file import SocketError, SocketFile

LABEL_VALUE = re.compile("[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


class Machines(provider_pb2_grpc.ProviderServiceServicer, instance_pb2_grpc.InstanceServiceServicer):
    def __init__(self, file: Path) -> None:
        self.file = file
        self.boot_id = str(uuid.uuid4())  # New for every process (PROV-7).
        self.owner_id = ""

    async def GetProviderInfo(self, request, context):
        return provider.GetProviderInfoResponse(
            provider_name="machines",
            provider_version="1.0.0",
            boot_id=self.boot_id,
            provider_id_prefixes=["machines://"],
            # The controller calls no service that is missing here (CORE-5).
            capabilities=provider.Capabilities(instances=provider.InstanceCapability()),
        )

    async def Initialize(self, request, context):
        if not request.cluster.owner_id:
            return provider.InitializeResponse(failed=failure("INVALID", "cluster.owner_id is empty; right would be the UID of kube-system"))
        self.owner_id = request.cluster.owner_id
        return provider.InitializeResponse(initialized=provider.Initialized(cloud_scope=f"file {self.file}", read_only=request.read_only))

    async def Probe(self, request, context):
        return provider.ProbeResponse(state=provider.PROBE_STATE_READY, boot_id=self.boot_id)

    async def LookupInstances(self, request, context):
        if not self.owner_id or request.cluster.owner_id != self.owner_id:  # CORE-10
            return instance.LookupInstancesResponse(failed=failure("NOT_INITIALIZED", "Initialize for this owner ID comes first"))
        names = [node.name for node in request.nodes]
        if len(names) > 100 or "" in names or len(set(names)) < len(names):  # CORE-20; 100 is the default of max_batch.
            return instance.LookupInstancesResponse(failed=failure("INVALID", "the request has over 100 Nodes, one twice, or one without a name"))
        try:
            text = self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:  # Never a gRPC status, never ABSENT (CORE-4, INST-1).
            return instance.LookupInstancesResponse(failed=failure("UNAVAILABLE", f"{self.file} cannot be read: {getattr(error, 'strerror', 'it is not UTF-8')}"))
        lines = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
        machines = {f"machines://{line[0]}": line for line in lines if len(line) == 4}
        results = [self.result(node, machines) for node in request.nodes]
        return instance.LookupInstancesResponse(results=results)

    def result(self, node, machines):
        result = instance.LookupInstanceResult(node_name=node.name, node_uid=node.uid)  # INST-2
        # The provider ID identifies the machine if the Node has one (INST-3).
        known = node.provider_id if node.HasField("provider_id") else f"machines://{node.name}"
        if known not in machines:
            # A missing line does not prove that a machine is gone. The controller leaves an UNMANAGED Node alone.
            result.found.state = instance.INSTANCE_STATE_UNMANAGED
            return result
        _, address, machine, zone = machines[known]
        result.found.state = instance.INSTANCE_STATE_PRESENT
        result.found.provider_id = known
        for field, value in (("instance_type", machine), ("zone", zone)):
            if LABEL_VALUE.fullmatch(value):
                setattr(result.found, field, value)
            elif value:  # The contract cannot express it (INST-15).
                print(f"{known}: {field} {value!r} is no label value and is left out", file=sys.stderr)
        result.found.addresses.add(type=types.NODE_ADDRESS_TYPE_INTERNAL_IP, address=address)
        return result


def failure(code: str, message: str) -> types.Failure:
    return types.Failure(code=types.FailureCode.Value(f"FAILURE_CODE_{code}"), reason=code.title().replace("_", ""), message=message)


async def main(file: str, endpoint: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    socket = SocketFile(endpoint)  # Modes, stale files, symbolic links (CORE-2).
    await socket.claim()
    size = 4 * 1024 * 1024  # CORE-11: a request has at most 4 MiB.
    pings = [("grpc.keepalive_time_ms", 2**31 - 1), ("grpc.http2.bdp_probe", 0)]  # CORE-1: none.
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", size), *pings])
    machines = Machines(Path(file))
    provider_pb2_grpc.add_ProviderServiceServicer_to_server(machines, server)
    instance_pb2_grpc.add_InstanceServiceServicer_to_server(machines, server)
    server.add_insecure_port(f"unix://{socket.private}")
    await server.start()
    socket.publish()
    await stop.wait()
    socket.remove()
    await server.stop(grace=10)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: first.py FILE unix:///PATH")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except SocketError as error:
        sys.exit(str(error))
