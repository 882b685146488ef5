"""The stderr of a service, which ends for nothing that is said there.

The terminal may have been closed, the program that read it may have gone or may
read no more, the disk may be full: what cannot be written is lost.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from select import select
from time import monotonic
from typing import TextIO, cast

_PATIENCE = 0.25  # seconds
_PIECE = 4096  # bytes, for which a pipe with room has a page


class _Heedless:
    """A stream on which writing never fails, and never waits long.

    A slow reader is waited for a moment; after that not at all, until there is room again.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waits = _may_wait(stream)
        self._patience = _PATIENCE

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            if self._waits:
                self._write_pieces(text)
            else:
                self._stream.write(text)
        return len(text)

    def _write_pieces(self, text: str) -> None:
        """In pieces that go in without a wait where there is room at all."""
        ends = monotonic() + self._patience
        for piece in _pieces(text):
            _, room, _ = select([], [self._stream], [], max(ends - monotonic(), 0))
            self._patience = _PATIENCE if room else 0.0
            if not room:
                return
            self._stream.write(piece)
            self._stream.flush()

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of whole lines, as many as are sure to be short enough together."""
    most = _PIECE if text.isascii() else _PIECE // 4
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + most) + 1 or start + most
        yield text[start:end]
        start = end


def _may_wait(stream: TextIO) -> bool:
    """Return true if a reader may drain the stream and waiting for room is possible."""
    try:
        return sys.platform != "win32" and not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:
        return False


@contextmanager
def heedless() -> Iterator[None]:
    """While the block runs nothing fails because stderr cannot be written to."""
    with redirect_stderr(cast(TextIO, _Heedless(sys.stderr))):
        yield
