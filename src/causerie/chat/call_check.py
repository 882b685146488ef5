"""Classifies each delivered call by whether its client can run it.

The check runs in a thread once the reply has been delivered, so no reply waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
import structlog

from causerie.chat.call_syntax.base import json_value
from causerie.chat.schema.compiled import Work, WorkExceeded
from causerie.chat.schema.keywords import SchemaRefused
from causerie.chat.schema.normal import Rewriter
from causerie.chat.validation import MOST_STEPS, CheckedSchema
from causerie.http.event_loop import offload
from causerie.protocol.request import Tool
from causerie.protocol.targets import CallClass

log = structlog.get_logger(__name__)

SAMPLE_SECONDS = 0.1  # between replies of one provider that are checked
MOST_WAITING = 256  # replies
MAX_ARGUMENTS = 256 * 1024  # characters
MAX_SCHEMA = 32 * 1024  # bytes

Calls = Sequence[tuple[str, str]]  # names and arguments

_Job = tuple[str, Calls, Sequence[Tool]]


def call_class(name: str, arguments: str, tools: Iterable[Tool]) -> CallClass:
    """Classify a tool call: valid, unknown name, invalid JSON, schema mismatch or unchecked."""
    if len(arguments) > MAX_ARGUMENTS:
        return "unchecked"
    tool = next((one for one in tools if one.name == name), None)
    if tool is None:
        return "unknown_name"
    try:
        value = json_value(arguments)
    except (ValueError, RecursionError):
        return "invalid_json"
    if not isinstance(value, dict):
        return "schema_mismatch"
    rules = _build_checked_schema(msgspec.json.encode(tool.parameters))
    if rules is None:
        return "unchecked"
    try:
        broken = rules.fault(value, Work(MOST_STEPS))
        return "schema_mismatch" if broken else "fine"
    except WorkExceeded:
        return "unchecked"


@dataclass(eq=False)
class CallChecker:
    """Classifies calls in the order of their delivery.

    ``count`` takes a target's name and the classes of the calls of one reply; ``is_own`` says of a
    target whether all of its replies are checked. ``run`` works until it is cancelled.
    """

    count: Callable[[str, Sequence[CallClass]], None]
    is_own: Callable[[str], bool]
    clock: Callable[[], float] = time.monotonic
    _next_sample_times: dict[str, float] = field(init=False, default_factory=dict)  # by target
    _waiting: asyncio.Queue[_Job] = field(
        init=False, default_factory=lambda: asyncio.Queue(MOST_WAITING)
    )

    def take(self, target: str, delivered: Callable[[], Calls], tools: Sequence[Tool]) -> None:
        """Queue the calls of a reply to be classified; of targets not our own, only samples."""
        own, now = self.is_own(target), self.clock()
        if not own and now < self._next_sample_times.get(target, now):
            return
        calls = delivered()
        if not calls:
            return
        self._next_sample_times[target] = now + SAMPLE_SECONDS
        try:
            self._waiting.put_nowait((target, calls, tools))
        except asyncio.QueueFull:
            if own:
                self.count(target, ["unchecked"] * len(calls))

    async def run(self) -> None:
        while True:
            target, calls, tools = await self._waiting.get()
            classes = (call_class(name, arguments, tools) for name, arguments in calls)
            try:
                self.count(target, await offload(list, classes))
            except Exception as failure:  # noqa: BLE001 - one bad reply must not hold up all others
                kind = type(failure).__name__  # its words may quote
                log.error("calls not checked", target=target, error=kind)


@lru_cache(maxsize=256)
def _build_checked_schema(schema_json: bytes) -> CheckedSchema | None:
    if len(schema_json) > MAX_SCHEMA:
        return None
    try:
        return CheckedSchema(Rewriter(msgspec.json.decode(schema_json), "parameters").rewrite())
    except (SchemaRefused, RecursionError):
        return None
