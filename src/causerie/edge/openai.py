"""The operations of the interface: list models, create a chat completion."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec
import structlog
from msgspec import structs

from causerie.access.keys import Caller
from causerie.edge.body import BodyLimits, body_at_hand, check_type, read_body
from causerie.edge.credential import credential
from causerie.edge.doors import Door
from causerie.edge.drain import Drain
from causerie.edge.errors import internal
from causerie.edge.exchange import ClientGone, Exchange
from causerie.edge.labels import labels_of
from causerie.edge.numbered import error_for
from causerie.edge.ports import Pipeline, Reply
from causerie.edge.stream import EventStream
from causerie.errors import NotFound, ServiceError
from causerie.fold import Fold, Frame, Identity, Whole
from causerie.logging import request_id
from causerie.protocol.parsing import Rules, parse
from causerie.protocol.request import ChatRequest

log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode
_MAX_NAMED = 32


def _unix_time() -> int:
    return time.time_ns() // 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may be, and how patient we are with its client (seconds)."""

    body: BodyLimits = field(default_factory=BodyLimits)
    max_messages: int = 4096
    max_nesting: int = 64
    ping_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class OpenAI:
    """The handlers of one service; every door uses the same."""

    pipeline: Pipeline
    drain: Drain
    limits: Limits = Limits()
    clock: Callable[[], int] = _unix_time
    _known: dict[tuple[bool, str, bool], Rules] = field(default_factory=dict, init=False)

    async def list_models(self, exchange: Exchange, door: Door, _: str) -> None:
        """``GET /models``."""
        caller = await self._catalog_caller(exchange, door)
        entries = self.pipeline.models(door, caller)
        exchange.json({"object": "list", "data": entries})

    async def show_model(self, exchange: Exchange, door: Door, name: str) -> None:
        """``GET /models/{id}``."""
        caller = await self._catalog_caller(exchange, door)
        for entry in self.pipeline.models(door, caller):
            if entry.get("id") == name:
                exchange.json(entry)
                return
        raise NotFound(
            f"There is no model {name[:200]} here; GET /models lists those that there are.",
            code="model_not_found",
            param="model",
        )

    async def complete(self, exchange: Exchange, door: Door, _: str) -> None:
        """``POST /chat/completions``."""
        exchange.name_completion()
        request_id.set(exchange.request_id)
        caller = await self.pipeline.authenticate(door, credential(exchange))
        await self.answer(exchange, door, caller)

    async def answer(self, exchange: Exchange, door: Door, caller: Caller) -> None:
        """Read and answer a request for a chat completion of somebody who is known."""
        completion_id = exchange.name_completion()
        with self.drain:
            check_type(exchange.headers)
            limits = self.limits.body
            body = body_at_hand(exchange, limits) or await read_body(exchange, limits)
            request = _in_session(parse(body, self._rules(exchange, door)), exchange)
            identity = Identity(completion_id, self.clock(), exchange.request_id)
            answer = self._stream if request.stream else self._plain
            await answer(exchange, door, caller, request, identity)

    async def _plain(
        self,
        exchange: Exchange,
        door: Door,
        caller: Caller,
        request: ChatRequest,
        identity: Identity,
    ) -> None:
        labels = labels_of(exchange.headers)
        answers: list[Whole] = []
        headers: Mapping[str, str] = {}

        async def deliver(reply: Reply) -> None:
            nonlocal headers
            headers = _headers(reply, request)
            whole = Whole(reply.frame)
            answers.append(whole)
            async for batch in reply.events:
                whole.feed(batch)

        with self.drain.watched(exchange):
            await self.pipeline.answer(door, caller, request, identity, deliver, labels)
        exchange.respond(200, _encode(answers[-1].completion()), headers=headers)

    async def _stream(
        self,
        exchange: Exchange,
        door: Door,
        caller: Caller,
        request: ChatRequest,
        identity: Identity,
    ) -> None:
        labels = labels_of(exchange.headers)
        fold = Fold(Frame(identity, request.model, ""), usage=request.include_usage)
        with EventStream(exchange, ping_seconds=self.limits.ping_seconds) as events:

            async def deliver(reply: Reply) -> None:
                fold.frame = reply.frame
                events.start(_headers(reply, request))
                async for batch in reply.events:
                    if told := fold.feed(batch):
                        events.put(told)
                    if events.blocked:
                        await events.room()

            try:
                with self.drain.watched(exchange):
                    await self.pipeline.answer(door, caller, request, identity, deliver, labels)
            except ClientGone:
                raise
            except Exception as failure:
                if not events.started:
                    raise
                error = error_for(_told(failure, exchange), exchange.headers)
                events.put(fold.broken(error))
            events.finish()

    async def _catalog_caller(self, exchange: Exchange, door: Door) -> Caller | None:
        if door.open_catalog:
            return None
        return await self.pipeline.authenticate(door, credential(exchange))

    def _rules(self, exchange: Exchange, door: Door) -> Rules:
        sent = exchange.headers.get("x-unknown-params")
        rejects = sent is not None and sent.lower() == "reject"
        rules = self._known.get((door.reasoning_object, door.kind, rejects))
        if rules is None:
            rules = self._known[door.reasoning_object, door.kind, rejects] = Rules(
                reasoning_object=door.reasoning_object,
                router=door.kind == "router",
                reject_unknown=rejects,
                max_messages=self.limits.max_messages,
                max_nesting=self.limits.max_nesting,
            )
        return rules


def _told(failure: Exception, exchange: Exchange) -> ServiceError:
    """The failure as the client may see it; one that is a bug is logged."""
    if isinstance(failure, ServiceError):
        return failure
    log.error("stream failed", path=exchange.path, exc_info=failure)
    return internal(exchange.request_id)


def _in_session(request: ChatRequest, exchange: Exchange) -> ChatRequest:
    """The request with the session that a header names, where its body names none."""
    session = exchange.headers.get("x-session-id", "")
    if not session or request.session_id is not None:
        return request
    return structs.replace(request, session_id=session)


def _headers(reply: Reply, request: ChatRequest) -> Mapping[str, str]:
    return {**reply.headers, **ignored(request)} if request.unknown else reply.headers


def ignored(request: ChatRequest) -> dict[str, str]:
    """The header that names the fields nobody knew, in characters that a header may have."""
    if not request.unknown:
        return {}
    names = [quote(name[:64], safe="[]$@:") for name in request.unknown[:_MAX_NAMED]]
    if len(request.unknown) > _MAX_NAMED:
        names.append("...")
    return {"x-ignored-params": ", ".join(names)}
