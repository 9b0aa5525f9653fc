"""`first.py`, the guide's provider, as a program. The conformance suite tests its answers (`providers/conformance.sh python-first`)."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudprovider.v1alpha1 import instance_pb2, provider_pb2, types_pb2
from first import Machines

PROGRAM = Path(__file__).parent.parent / "first.py"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_quietly_and_removes_its_socket(tmp_path, number):
    path = tmp_path / "socket" / "p.sock"
    started = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path / "machines.csv"), f"unix://{path}"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not path.exists():
        assert started.poll() is None and time.monotonic() < deadline, "it does not serve"
        time.sleep(0.02)
    started.send_signal(number)
    _, said = started.communicate(timeout=60)
    assert (started.returncode, said) == (0, "")
    assert list(path.parent.iterdir()) == []


async def lookup(file, *names):
    machines, cluster = Machines(file), types_pb2.ClusterRef(owner_id="us")
    await machines.Initialize(provider_pb2.InitializeRequest(cluster=cluster), None)
    nodes = [types_pb2.NodeView(name=name) for name in names]
    return await machines.LookupInstances(instance_pb2.LookupInstancesRequest(cluster=cluster, nodes=nodes), None)


@pytest.mark.parametrize("content", [None, "größe,10.0.0.1,8-cores,rack-a".encode("latin-1")])
async def test_a_file_that_cannot_be_read_is_unavailable(tmp_path, content):
    """CORE-4, INST-1."""
    file = tmp_path / "machines.csv"
    if content:
        file.write_bytes(content)
    failed = (await lookup(file, "a")).failed
    assert failed.code == types_pb2.FAILURE_CODE_UNAVAILABLE and str(file) in failed.message


async def test_spaces_around_a_field_do_not_count(tmp_path):
    (tmp_path / "machines.csv").write_text(" a , 10.0.0.1,8-cores , rack-a\r\n")
    [found] = [result.found for result in (await lookup(tmp_path / "machines.csv", "a")).results]
    assert (found.provider_id, found.addresses[0].address, found.instance_type, found.zone) == ("machines://a", "10.0.0.1", "8-cores", "rack-a")


async def test_a_type_or_zone_that_is_no_label_value_is_left_out(tmp_path, capsys):
    """INST-15: the instance keeps its other facts."""
    (tmp_path / "machines.csv").write_text("a,10.0.0.1,8 cores,")
    [found] = [result.found for result in (await lookup(tmp_path / "machines.csv", "a")).results]
    assert found.addresses[0].address == "10.0.0.1" and not found.HasField("instance_type") and not found.HasField("zone")
    assert "instance_type '8 cores'" in capsys.readouterr().err


def test_a_wrong_command_line_is_told_in_one_line():
    for arguments, words in [([], "usage"), (["machines.csv", "p.sock"], "use one like unix:///")]:
        ended = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1 and words in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
