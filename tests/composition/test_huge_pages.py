"""Memory that is moved into huge pages."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import pytest

from causerie.composition.huge_pages import collapse

SIZE = 2 * 1024 * 1024


def lines(address: int) -> list[str]:
    """The line of the mapping that holds this address."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(one, 16) for one in line.split()[0].split("-"))
        if start <= address < end:
            found.append(line)
    return found


def test_memory_is_moved_and_holds_what_it_held() -> None:
    with mmap.mmap(-1, 4 * SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"causerie" * (len(memory) // 8))
        handle = ctypes.c_char.from_buffer(memory)
        mapping = lines(ctypes.addressof(handle) + SIZE)
        del handle
        moved = collapse(mapping)
        if not moved:
            pytest.skip("this kernel does not move memory when it is asked to")
        assert moved >= 3 * SIZE
        assert memory[:] == b"causerie" * (len(memory) // 8)


@pytest.mark.parametrize(
    "mapping",
    [
        "7f0000000000-7f0000800000 r-xp 00000000 08:01 12 /usr/lib/libpython3.11.so",
        "7f0000000000-7f0000800000 rw-p 00000000 08:01 12 /var/lib/cache",
        "7f0000000000-7f0000800000 rw-s 00000000 00:01 12 /memfd:state (deleted)",
        "7f0000000000-7f0000800000 ---p 00000000 00:00 0",
        "7f0000001000-7f00003ff000 rw-p 00000000 00:00 0",
        "7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0 [stack]",
    ],
)
def test_other_memory_stays_where_it_is(mapping: str) -> None:
    assert collapse([mapping]) == 0
