"""Log lines that come by the thousand: kept for a moment, then written together.

They look like all other lines. Nothing is kept for longer than a quarter of a
second, and :meth:`Journal.flush` writes what is there at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeVar

import msgspec
import structlog
from msgspec.structs import asdict

from causerie.logging import json_stream, wanted

_SECONDS = 0.25
_encoder = msgspec.json.Encoder(enc_hook=str)

_Subject = TypeVar("_Subject")
Facts = msgspec.Struct
Line = tuple[int, Literal["info", "warning"], str, Facts]
_Kept = tuple[int, Literal["info", "warning"], str, Any, Callable[[Any], Facts] | None]


class Journal:
    """Writes to where all log lines go, in their form."""

    def __init__(self) -> None:
        self._waiting: list[_Kept] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, level: Literal["info", "warning"], event: str, facts: Facts) -> None:
        """Keep a line, unless lines of its level are not wanted. The facts must not change."""
        self.tell(level, event, facts, None)

    def tell(
        self,
        level: Literal["info", "warning"],
        event: str,
        subject: _Subject,
        facts: Callable[[_Subject], Facts] | None,
    ) -> None:
        """As :meth:`write`; the facts of ``subject`` are asked for when the line is written."""
        if not wanted(level):
            return
        self._waiting.append((time.time_ns(), level, event, subject, facts))
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
        kept, self._waiting = self._waiting, []
        if not kept:
            return
        lines: list[Line] = [
            (when, level, event, subject if facts is None else facts(subject))
            for when, level, event, subject, facts in kept
        ]
        out = json_stream()
        if out is None:
            for when, level, event, facts in lines:
                getattr(structlog.get_logger(), level)(event, time=_iso(when), **asdict(facts))
            return
        out.write("".join([_json(line) for line in lines]))
        out.flush()


def _json(line: Line) -> str:
    """One line, ended; its head is put in front of the facts, which are encoded as they are."""
    when, level, event, facts = line
    head = f'{{"time":"{_iso(when)}","level":"{level}","event":{_named(event)}'
    rest = _encoder.encode(facts).decode()[1:]
    return f"{head}{',' if len(rest) > 1 else ''}{rest}\n"


@lru_cache(maxsize=16)
def _named(event: str) -> str:
    return _encoder.encode(event).decode()


def _iso(when: int) -> str:
    """``when`` is in nanoseconds since 1970."""
    seconds, nanoseconds = divmod(when, 1_000_000_000)
    return f"{_second(seconds)}.{nanoseconds // 1000:06d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
