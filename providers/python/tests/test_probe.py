"""`provider.py probe`, as the kubelet runs it."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent.parent / "provider.py"


async def probe(endpoint, *flags):
    command = [sys.executable, str(PROGRAM), "probe", "--endpoint", endpoint, *flags]
    run = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    lines = (run.stdout + run.stderr).splitlines()
    assert len(lines) == 1, lines
    return run.returncode, lines[0]


async def test_a_provider_lives_whatever_its_cloud_does(cloud):
    assert await probe(cloud.endpoint, "--timeout=30s") == (0, "live: the provider says READY")
    cloud.weather(fail="UNAVAILABLE")
    await cloud.initialize()
    for flags in [(), ("--ready",)]:
        code, line = await probe(cloud.endpoint, "--timeout=30s", *flags)
        assert code == 0 and "the provider says DEGRADED (" in line


async def test_what_does_not_answer_is_named_in_time(tmp_path):
    def at(name):
        return f"unix://{tmp_path}/{name}"

    code, line = await probe(at("missing"))
    assert code == 1 and "does not exist" in line
    (tmp_path / "file").touch()
    code, line = await probe(at("file"), "--ready")
    assert code == 1 and line.startswith("not ready: no process listens")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        code, line = await probe(at("silent"), "--timeout=300ms")
        assert code == 1 and "within 0.3 s" in line

    # gRPC may connect again after the answer, and the probe may end before that connection is served. asyncio treats this as a normal end.
    async def answer(_, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "garbage"):
        code, line = await probe(at("garbage"), "--timeout=30s")
        assert code == 1 and "did not answer as a provider" in line
