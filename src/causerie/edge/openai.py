"""The operations of the interface: list models, create a chat completion."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import structlog
from msgspec import structs

from causerie.access.keys import Caller
from causerie.edge.answers import PlainAnswer, StreamedAnswer
from causerie.edge.body import BodyLimits, json_at_hand, read_json
from causerie.edge.cached import send_compressed
from causerie.edge.doors import MountedDoor
from causerie.edge.drain import Drain, WorkGuard
from causerie.edge.error_ids import error_for
from causerie.edge.errors import internal
from causerie.edge.exchange import ClientGone, Exchange
from causerie.edge.keep_alive import KeepAlive
from causerie.edge.request_hints import NO_HINTS, RequestHints, hints_of
from causerie.errors import ServiceError, forget_frames
from causerie.logging.setup import request_id
from causerie.pipeline import Pipeline
from causerie.protocol import bounded_json
from causerie.protocol.chunk_encoder import CompletionIdentity
from causerie.protocol.model_entries import ModelList
from causerie.protocol.parsing.body import parse, parse_at_once
from causerie.protocol.parsing.rules import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.runtime.offload import offload, work_of

log = structlog.get_logger(__name__)


def _unix_time() -> int:
    return time.time_ns() // 1_000_000_000


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds on a request, and the longest silence towards its client.

    A stream waits ``first_byte_seconds`` for its first content before it starts, for ever if 0.
    """

    body: BodyLimits = field(default_factory=BodyLimits)
    max_messages: int = 4096
    work: bounded_json.Bounds = bounded_json.DEFAULT
    ping_seconds: float = 15.0
    first_byte_seconds: float = 15.0


class OpenAI:
    """The handlers of one service; every door uses the same."""

    def __init__(
        self,
        pipeline: Pipeline,
        drain: Drain,
        limits: RequestLimits | None = None,
        clock: Callable[[], int] = _unix_time,
    ) -> None:
        self.pipeline = pipeline
        self._drain = drain
        self._limits = limits or RequestLimits()
        self._clock = clock
        self._pings = KeepAlive(self._limits.ping_seconds)
        first_byte = self._limits.first_byte_seconds
        self._head_timer = KeepAlive(first_byte) if first_byte else None
        self._known: dict[str, ParsingRules] = {}

    async def list_models(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller = await self._catalog_caller(exchange, door)
        body = msgspec.json.encode(ModelList(data=self.pipeline.models(door, caller)))
        await send_compressed(exchange, body, {})

    async def show_model(self, exchange: Exchange, door: MountedDoor, name: str) -> None:
        caller = await self._catalog_caller(exchange, door)
        exchange.json(self.pipeline.shown(door, caller, name))

    async def complete(
        self,
        exchange: Exchange,
        door: MountedDoor,
        _: str = "",
        *,
        caller: Caller | None = None,
        written: bytes | None = None,
    ) -> None:
        """``POST /chat/completions``; a ``caller`` has come in another way than by key.

        A body that we have ``written`` ourselves takes the place of the client's, and of its hints.
        """
        completion, head = exchange.name_completion(), exchange.head
        request_id.set(exchange.request_id)
        if caller is None:
            key, pipeline = head.credential, self.pipeline
            caller = pipeline.known(door, key) or await pipeline.authenticate(door, key)
        work_of.set(caller.project or caller.key or exchange.peer)
        answer: PlainAnswer | StreamedAnswer | None = None
        try:
            with WorkGuard(exchange, self._drain):
                most = self._limits.body
                request_hints = hints_of(head.headers) if written is None else NO_HINTS
                body = written or json_at_hand(exchange, most) or await read_json(exchange, most)
                request = await self._read(body, door, request_hints)
                self._accept(caller, request, body)
                del body  # of which the request has all
                identity = CompletionIdentity(completion, self._clock(), exchange.request_id)
                answer = self._answer_to(request, exchange, identity)
                exchange.metered = True
                await self.pipeline.answer(
                    door, caller, request, identity, answer, request_hints.labels
                )
        except ClientGone:
            raise
        except Exception as failure:  # whatever it is, a stream that has started says so
            if exchange.status is None or not isinstance(answer, StreamedAnswer):
                raise
            answer.break_off(error_for(_told(failure, exchange), exchange.headers))
            forget_frames(failure)
        finally:
            if isinstance(answer, StreamedAnswer):
                answer.leave()
        await answer.finish(exchange)

    def _answer_to(
        self, request: ChatRequest, exchange: Exchange, identity: CompletionIdentity
    ) -> PlainAnswer | StreamedAnswer:
        if not request.stream:
            return PlainAnswer()
        return StreamedAnswer(request, exchange, identity, self._pings, self._head_timer)

    async def _read(
        self, body: bytes, door: MountedDoor, request_hints: RequestHints
    ) -> ChatRequest:
        """The request; its session is that of a header where its body names none."""
        rules = self._known.get(door.name) or self._rules(door)
        if request_hints.strict:
            rules = structs.replace(rules, reject_unknown=True)
        request = parse_at_once(body, rules)
        if request is None:
            request = await offload(parse, body, rules)
        if request_hints.session and request.session_id is None:
            request = structs.replace(request, session_id=request_hints.session)
        return request

    def _accept(self, caller: Caller, request: ChatRequest, body: bytes) -> None:
        """Answer it here."""

    async def _catalog_caller(self, exchange: Exchange, door: MountedDoor) -> Caller | None:
        if door.open_catalog:
            return None
        return await self.pipeline.authenticate(door, exchange.credential)

    def _rules(self, door: MountedDoor) -> ParsingRules:
        rules = self._known[door.name] = ParsingRules(
            reasoning_object=door.reasoning_object,
            router=door.kind == "router",
            reject_unknown=door.reject_unknown,
            reject_long_output=door.reject_long_output,
            max_messages=self._limits.max_messages,
            work=self._limits.work,
        )
        return rules


def _told(failure: Exception, exchange: Exchange) -> ServiceError:
    """The failure as the client may see it; one that is a bug is logged."""
    if isinstance(failure, ServiceError):
        return failure
    log.error("stream failed", path=exchange.path, exc_info=failure)
    return internal(exchange.request_id)
