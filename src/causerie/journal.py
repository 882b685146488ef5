"""Log lines that come by the thousand: kept for a moment, then written together.

They look like all other lines. Nothing is kept for longer than a quarter of a
second, and :meth:`Journal.flush` writes what is there at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec
import structlog

from causerie.logging import json_stream, wanted

_SECONDS = 0.25
_encoder = msgspec.json.Encoder(enc_hook=str)

Line = tuple[int, Literal["info", "warning"], str, Mapping[str, object]]


class Journal:
    """Writes to where all log lines go, in their form."""

    def __init__(self) -> None:
        self._waiting: list[Line] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(
        self, level: Literal["info", "warning"], event: str, facts: Mapping[str, object]
    ) -> None:
        """Keep a line, unless lines of its level are not wanted."""
        if not wanted(level):
            return
        self._waiting.append((time.time_ns(), level, event, facts))
        if self._timer is None:
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
        lines, self._waiting = self._waiting, []
        out = json_stream()
        if out is None:
            for when, level, event, facts in lines:
                getattr(structlog.get_logger(), level)(event, time=_iso(when), **facts)
            return
        encoded = [
            _encoder.encode({"time": _iso(when), "level": level, "event": event, **facts})
            for when, level, event, facts in lines
        ]
        if encoded:
            out.write(b"\n".join([*encoded, b""]).decode())
            out.flush()


def _iso(when: int) -> str:
    """``when`` is in nanoseconds since 1970."""
    return datetime.fromtimestamp(when / 1e9, UTC).isoformat().replace("+00:00", "Z")
