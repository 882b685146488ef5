"""Huge pages for the memory of this process.

A request reads all over the heap: code, types, tables. Where the processor has forgotten the
address of a page it walks through the page tables, in a virtual machine those of guest and host. A
huge page has 512 times the size, so that far fewer addresses are to be known.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread

_SIZE = 2 * 1024 * 1024  # bytes, of most processors
_COLLAPSE = 25  # MADV_COLLAPSE of linux/mman.h, since 6.1
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPS = Path("/proc/self/maps")
_WARM_SECONDS = 60.0  # a process that ends before has no use for it


def collapse_later() -> None:
    """Have the heap of this process moved into huge pages, a minute after its start.

    Nothing is done where the system does not offer that, or is not to use huge pages.
    """
    asyncio.get_running_loop().call_later(
        _WARM_SECONDS, Thread(target=_collapse, daemon=True).start
    )


def _collapse() -> None:
    try:
        if "[never]" not in _SETTING.read_text():
            collapse(_MAPS.read_text().splitlines())
    except OSError:  # another system
        pass


def collapse(maps: Iterable[str]) -> int:
    """Move writable memory without a file into huge pages; return how many bytes are in them now.

    ``maps`` are lines of ``/proc/self/maps``.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return sum(size for start, size in _blocks(maps) if madvise(start, size, _COLLAPSE) == 0)


def _blocks(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield start and size of what huge pages can hold of each mapping."""
    for line in maps:
        addresses, rights, *_, name = [*line.split(maxsplit=5), ""][:6]
        start, end = (int(one, 16) for one in addresses.split("-"))
        start, end = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
        if rights == "rw-p" and name in ("", "[heap]") and start < end:
            yield start, end - start
