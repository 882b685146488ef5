"""Log lines that come by the thousand: kept for a moment, then written together.

JSON lines look like all other lines; on a terminal each is a short line of its own form. Nothing
is kept for longer than a quarter of a second, nor more than a few hundred lines, and
:meth:`LogBuffer.flush` writes what is there at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from causerie.logging.setup import CLOCK, lines_of, wanted

_SECONDS = 0.25
_MOST = 256  # lines; more would hold up what else there is to do while they are written
_WHOLE_BYTES = 4096  # a pipe takes so many in one piece, whoever else writes to it (POSIX PIPE_BUF)
_encoder = msgspec.json.Encoder(enc_hook=str)

_Subject = TypeVar("_Subject", contravariant=True)
Level = Literal["info", "warning"]


class LineFormat(Protocol[_Subject]):
    """Both forms of the line of one kind of subject."""

    def line(self, subject: _Subject, when: datetime) -> msgspec.Struct:
        """Return the JSON line; its first fields are ``time``, ``level`` and ``event``."""

    def text(self, subject: _Subject, clock: str, *, colours: bool) -> str:
        """Return the line for people, without its end; it begins with the time of the clock."""


class LogBuffer:
    """Writes to where all log lines go, in their form."""

    def __init__(self) -> None:
        self._waiting: list[tuple[LineFormat[Any], Any, datetime]] = []
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, level: Level, form: LineFormat[_Subject], subject: _Subject) -> None:
        """Keep what there is a line of, where lines of its level are wanted.

        The line is made when it is written.
        """
        if not wanted(level):
            return
        self._waiting.append((form, subject, datetime.now(UTC)))
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
        out, is_json = lines_of()
        if is_json:
            for piece in _pieces([form.line(subject, when) for form, subject, when in kept]):
                out.write(piece)
                out.flush()
            return
        colours = out.isatty()
        for form, subject, when in kept:
            clock = f"{when.astimezone():{CLOCK}}"
            out.write(form.text(subject, clock, colours=colours) + "\n")
        out.flush()


def _pieces(lines: Sequence[msgspec.Struct]) -> Iterator[str]:
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
