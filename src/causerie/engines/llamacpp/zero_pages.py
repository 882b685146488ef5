"""Memory that the engine has cleared and not used: giving it back until it is used.

The engine reserves the key-value caches of all slots when it loads, and clears them, which makes
the system provide every page. A page that was given back reads as zeros again, so for the engine
nothing changes, as long as nobody writes to it between the look and the return. Therefore this
runs once, when the model has loaded and nobody can ask yet, and only looks at large mappings in
large pieces: caches lie in them, and the heaps and stacks of running threads do not.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_PIECE = 2**21  # bytes; a huge page
_LEAST_MAPPING = 2**26  # bytes; a heap of the C library is never larger
_MAPS = Path("/proc/self/maps")
_NO_HUGE_PAGE = 15  # MADV_NOHUGEPAGE; its constant is absent in builds with old headers


def give_back_zero_pages() -> int:
    """Return cleared memory to the system, and how many bytes that were; none outside of Linux."""
    if sys.platform != "linux":
        return 0
    library = ctypes.CDLL(None)
    library.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    zeros = ctypes.create_string_buffer(_PIECE)
    size = 0
    for piece in _pieces(private_mappings(_MAPS.read_text().splitlines())):
        if library.memcmp(piece, zeros, _PIECE) != 0:
            continue
        if library.madvise(piece, _PIECE, mmap.MADV_DONTNEED) == 0:
            # Otherwise the first token in a piece could take all of it again.
            library.madvise(piece, _PIECE, _NO_HUGE_PAGE)
            size += _PIECE
    return size


def private_mappings(lines: Iterable[str]) -> Iterator[range]:
    """Yield the addresses of large writable mappings that have no file and are not shared."""
    for line in lines:
        addresses, access, _, _, _, *name = line.split(maxsplit=5)
        if access != "rw-p" or (name and not name[0].startswith("[anon:")):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        if end - begin > _LEAST_MAPPING:
            yield range(begin, end)


def _pieces(mappings: Iterable[range]) -> Iterator[int]:
    """Yield the addresses of all whole pieces."""
    for mapping in mappings:
        first = -(-mapping.start // _PIECE) * _PIECE
        yield from range(first, mapping.stop - _PIECE + 1, _PIECE)
