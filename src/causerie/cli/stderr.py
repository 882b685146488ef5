"""The stderr of a service, which ends for nothing that is said there.

The terminal may have been closed, the program that read it may have gone, the
disk may be full: what cannot be written is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import TextIO, cast


class _Heedless:
    """A stream on which writing never fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


@contextmanager
def heedless() -> Iterator[None]:
    """While the block runs nothing fails because stderr cannot be written to."""
    with redirect_stderr(cast(TextIO, _Heedless(sys.stderr))):
        yield
