"""`provider.py probe`: whether the provider on a socket answers. For the kubelet's exec probes, because its gRPC probe does not support Unix sockets."""

import argparse
import os
import re
import socket
import sys

import grpc

from cloudprovider.v1alpha1 import provider_pb2 as pb
from cloudprovider.v1alpha1 import provider_pb2_grpc
from socket_file import DEFAULT_ENDPOINT

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def duration(text: str) -> float:
    """`500ms`, `1s`: seconds."""
    match = re.fullmatch(r"(\d+)(ms|s|m)", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write a whole number and a unit, such as 500ms or 1s")
    return int(match[1]) * UNITS[match[2]]


def ask(endpoint: str, timeout: float, ready: bool) -> tuple[bool, str]:
    """Whether the probe passes, and why. A provider is live if it answers Probe with any state: the kubelet must not kill it because its cloud is down."""
    wanted = "ready" if ready else "live"
    path = endpoint.removeprefix("unix://")
    try:
        # The texts for these errors have more information than gRPC's.
        with socket.socket(socket.AF_UNIX) as first:
            first.settimeout(timeout)
            first.connect(path)
    except PermissionError:
        return False, f"not {wanted}: uid {os.geteuid()}, gid {os.getegid()} may not connect to the socket {path}: probe as the provider's user"
    except ConnectionRefusedError:
        return False, f"not {wanted}: no process listens on the socket {path}: the provider is not running, or does not listen yet"
    except FileNotFoundError:
        return False, f"not {wanted}: the socket {path} does not exist: the provider has not started to serve, or serves elsewhere"
    except OSError as error:
        return False, f"not {wanted}: cannot connect to the socket {path}: {error}"
    try:
        with grpc.insecure_channel(f"unix://{path}", options=[("grpc.default_authority", "localhost")]) as channel:
            answer = provider_pb2_grpc.ProviderServiceStub(channel).Probe(pb.ProbeRequest(), timeout=timeout)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            return False, f"not {wanted}: no answer from {path} within {timeout:g} s: the provider hangs, or has too little CPU"
        return False, f"not {wanted}: the process that listens on {path} did not answer as a provider ({error.code().name}: {error.details()})"
    states = {pb.PROBE_STATE_STARTING: "STARTING", pb.PROBE_STATE_READY: "READY", pb.PROBE_STATE_DEGRADED: "DEGRADED"}
    why = f" ({' '.join(answer.message.splitlines())})" if answer.message else ""
    passed = not ready or answer.state in (pb.PROBE_STATE_READY, pb.PROBE_STATE_DEGRADED)
    return passed, f"{'' if passed else 'not '}{wanted}: the provider says {states.get(answer.state, 'BROKEN')}{why}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="provider.py probe", description="Ask a provider how it is: 0 if it answers (with --ready: READY or DEGRADED), else 1, and a line that says why.")
    parser.add_argument("--endpoint", default=DEFAULT_ENDPOINT, help="the socket of the provider (default: %(default)s)")
    parser.add_argument("--timeout", type=duration, default=1.0, help="how long to wait for the connection, and then for the answer (default: 1s)")
    parser.add_argument("--ready", action="store_true", help="fail also unless the state is READY or DEGRADED")
    args = parser.parse_args(argv)
    passed, line = ask(args.endpoint, args.timeout, args.ready)
    print(line, file=sys.stdout if passed else sys.stderr)
    return 0 if passed else 1
