"""Log lines that come by the thousand: kept for a moment, then written together.

They look like all other lines. Nothing is kept for longer than a quarter of a
second, nor more than a few hundred lines, and :meth:`LogBuffer.flush` writes what is there at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TypeVar, cast

import msgspec
import structlog
from msgspec.structs import asdict

from causerie.logging.setup import json_stream, wanted

_SECONDS = 0.25
_MOST = 256  # lines; more would hold up what else there is to do while they are written
_WHOLE_BYTES = 4096  # a pipe takes so many in one piece, whoever else writes to it (POSIX PIPE_BUF)
_encoder = msgspec.json.Encoder(enc_hook=str)

_Subject = TypeVar("_Subject")
Level = Literal["info", "warning"]


class LogLine(Protocol):
    """A struct of which these are the first fields; the rest are facts."""

    @property
    def time(self) -> datetime: ...
    @property
    def level(self) -> Level: ...
    @property
    def event(self) -> str: ...


class LogBuffer:
    """Writes to where all log lines go, in their form."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[Any, datetime], LogLine], Any, datetime]] = []
        self._timer: asyncio.TimerHandle | None = None

    def tell(
        self, level: Level, line: Callable[[_Subject, datetime], LogLine], subject: _Subject
    ) -> None:
        """Keep what there is a line of, where lines of its level are wanted.

        The line is made when it is written.
        """
        if not wanted(level):
            return
        self._waiting.append((line, subject, datetime.now(UTC)))
        if len(self._waiting) >= _MOST:
            self.flush()
        elif self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                self.flush()
            else:
                self._timer = loop.call_later(_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what is kept."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._waiting = self._waiting, []
        lines = [line(subject, when) for line, subject, when in kept]
        out = json_stream()
        if out is not None:
            for piece in _pieces(lines):
                out.write(piece)
                out.flush()
            return
        for line in lines:
            facts = asdict(cast(msgspec.Struct, line))
            when, level, event = facts.pop("time"), facts.pop("level"), facts.pop("event")
            getattr(structlog.get_logger(), level)(event, time=f"{when:%FT%T.%fZ}", **facts)


def _pieces(lines: Sequence[LogLine]) -> Iterator[str]:
    """Whole lines, in pieces that no other process can write into."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        text = _encoder.encode(line) + b"\n"
        if piece and size + len(text) > _WHOLE_BYTES:
            yield b"".join(piece).decode()
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield b"".join(piece).decode()
