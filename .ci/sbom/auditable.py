"""Reads the list of crates that cargo-auditable writes into a binary: `auditable.py FILE` prints it as JSON."""

import json
import struct
import sys
import zlib
from pathlib import Path

SECTION = b".dep-v0\0"


def crates(binary: bytes) -> list[dict] | None:
    """The packages that an ELF binary names, its own among them; None if it has no list."""
    if binary[:6] != b"\x7fELF\x02\x01":
        return None
    (headers,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, named = struct.unpack_from("<HHH", binary, 0x3A)

    def header(number: int) -> tuple[int, int, int]:
        name, _, _, _, start, length = struct.unpack_from("<IIQQQQ", binary, headers + number * size)
        return name, start, length

    names = header(named)[1]
    for number in range(count):
        name, start, length = header(number)
        if binary[names + name :].startswith(SECTION):
            return json.loads(zlib.decompress(binary[start : start + length]))["packages"]
    return None


if __name__ == "__main__":
    found = crates(Path(sys.argv[1]).read_bytes())
    if found is None:
        sys.exit(f"{sys.argv[1]} names no crates: it has no section .dep-v0")
    print(json.dumps(found))
