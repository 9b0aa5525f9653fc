"""`first.py`, the guide's provider, as a program. The conformance suite tests its answers (`providers/conformance.sh python-first`)."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def test_a_wrong_command_line_is_told_in_one_line():
    for arguments, words in [([], "usage"), (["machines.csv", "p.sock"], "use one like unix:///")]:
        ended = subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 1 and words in ended.stderr and ended.stderr.count("\n") == 1, ended.stderr
