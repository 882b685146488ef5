"""Handle API requests: list models, answer completions, show a router's catalog and keys."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct, structs

from causerie.access.keys import Caller
from causerie.catalog.page_cache import CatalogCache
from causerie.errors import InvalidRequest, NotFound, ServiceError
from causerie.http import answers
from causerie.http.doors import MountedDoor
from causerie.http.event_loop import offload, work_of
from causerie.http.exchange import BodyLimits, ClientGone, Exchange, json_at_hand, read_json
from causerie.http.head import NO_HINTS, Headers, RequestHints
from causerie.http.tasks import Drain, WorkGuard
from causerie.pipeline import Pipeline
from causerie.protocol import bounded_json, key_statements
from causerie.protocol.model_entries import Count, ModelList
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest
from causerie.shapes.shape import ParsedRequest, Shape


class RequestLimits(Struct, frozen=True):
    """Bounds on a request, and the longest silence in a stream."""

    body: BodyLimits = BodyLimits()
    max_messages: int = 4096
    work: bounded_json.Bounds = bounded_json.DEFAULT
    ping_seconds: float = 15.0
    first_byte_seconds: float = 15.0  # until a stream starts without content; 0: it does not


async def authenticated(
    pipeline: Pipeline, exchange: Exchange, door: MountedDoor, caller: Caller | None = None
) -> Caller:
    """Return the owner of a request's key or the given ``caller``, and check its networks."""
    if caller is None:
        key = exchange.head.credential
        if not door.accounts:
            caller = pipeline.keys.authenticate(door, key)
        elif pipeline.members is not None:
            caller = await pipeline.members.keys.authenticate(door.name, key)
        else:
            raise ServiceError(f"The door {door.name} takes keys of accounts; there are none here.")
    if caller.networks is not None:
        caller.networks.check(exchange.client(door.proxies), "This key")
    return caller


class CompletionHandlers:
    """Handlers of models and completions, the same for all doors of a service."""

    def __init__(self, pipeline: Pipeline, drain: Drain, limits: RequestLimits) -> None:
        self.pipeline = pipeline
        self._drain_state = drain
        self._limits = limits
        self._ping_timer = answers.KeepAlive(limits.ping_seconds)
        first_byte = limits.first_byte_seconds
        self._head_timer = answers.KeepAlive(first_byte) if first_byte else None
        self._parsing_rules_cache: dict[tuple[str, bool, bool], ParsingRules] = {}

    async def list_models(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller = await self._authenticate_unless_catalog_open(exchange, door)
        body = msgspec.json.encode(ModelList(data=self.pipeline.models(door, caller)))
        await answers.send_compressed(exchange, body, {})

    async def show_model(self, exchange: Exchange, door: MountedDoor, name: str) -> None:
        caller = await self._authenticate_unless_catalog_open(exchange, door)
        exchange.json(self.pipeline.shown(door, caller, name))

    async def complete(
        self,
        shape: Shape,
        exchange: Exchange,
        door: MountedDoor,
        _: str = "",
        *,
        caller: Caller | None = None,
        written: bytes | None = None,
    ) -> None:
        """Answer a completion of ``caller``, or else of the owner of the request's key.

        ``written`` replaces the body, and the hints in the headers are ignored then."""
        identity, head, most = exchange.begin_completion(shape), exchange.head, self._limits.body
        if caller is None and not door.accounts:
            caller = self.pipeline.keys.authenticate(door, head.credential)
        else:
            caller = await authenticated(self.pipeline, exchange, door, caller)
        work_of.set(caller.project or caller.key or exchange.wire.peer)
        answer: answers.PlainAnswer | answers.StreamedAnswer
        parsed: ParsedRequest | None = None
        stream: answers.StreamedAnswer | None = None
        try:
            with WorkGuard(exchange, self._drain_state):
                hints = head.hints if written is None else NO_HINTS
                body = written or json_at_hand(exchange, most) or await read_json(exchange, most)
                rules = self._get_parsing_rules(door, hints)
                parsed = shape.parse_at_once(body, rules, head.headers) or await _parse_in_thread(
                    shape, body, rules, head.headers
                )
                request = _add_session(parsed.request, hints) if hints.session else parsed.request
                del body  # of which the request has all
                if request.stream:
                    answer = stream = answers.StreamedAnswer(
                        parsed, exchange, identity, shape.ping, self._ping_timer, self._head_timer
                    )
                else:
                    answer = answers.PlainAnswer(parsed)
                exchange.metered = True
                await self.pipeline.answer(door, caller, request, identity, answer, hints.labels)
        except Exception as failure:  # whatever it is, a stream that has started says so
            if parsed is not None:
                parsed.places.rename(failure)
            if exchange.status is None or stream is None or isinstance(failure, ClientGone):
                raise
            stream.break_off(failure)
        finally:
            if stream is not None:
                stream.leave()
        await answer.finish(exchange)

    async def count(self, shape: Shape, exchange: Exchange, door: MountedDoor, _: str = "") -> None:
        """Answer with a prompt's number of tokens; a header says whether the number is exact."""
        assert shape.count_body is not None
        exchange.begin_completion(shape)
        caller = await authenticated(self.pipeline, exchange, door)
        work_of.set(caller.project or caller.key or exchange.wire.peer)
        with WorkGuard(exchange, self._drain_state):
            head, most = exchange.head, self._limits.body
            body = json_at_hand(exchange, most) or await read_json(exchange, most)
            rules = self._get_parsing_rules(door, head.hints, counting=True)
            parsed = shape.parse_at_once(body, rules, head.headers) or await _parse_in_thread(
                shape, body, rules, head.headers
            )
            request = _add_session(parsed.request, head.hints)
            try:
                tokens, exact = await self.pipeline.count_tokens(door, caller, request)
            except ServiceError as failure:
                parsed.places.rename(failure)
                raise
        counted = {"x-token-count": "exact" if exact else "estimated"}
        exchange.json(shape.count_body(tokens), counted)

    def _get_parsing_rules(
        self, door: MountedDoor, hints: RequestHints, *, counting: bool = False
    ) -> ParsingRules:
        place = door.name, hints.strict, counting
        rules = self._parsing_rules_cache.get(place)
        if rules is None:
            rules = parsing_rules(door, self._limits)
            strict = hints.strict or rules.reject_unknown
            rules = structs.replace(rules, reject_unknown=strict, counting=counting)
            self._parsing_rules_cache[place] = rules
        return rules

    async def _authenticate_unless_catalog_open(
        self, exchange: Exchange, door: MountedDoor
    ) -> Caller | None:
        if door.open_catalog:
            return None
        return await authenticated(self.pipeline, exchange, door)


async def _parse_in_thread(
    shape: Shape, body: bytes, rules: ParsingRules, headers: Headers
) -> ParsedRequest:
    return await offload(shape.parse, body, rules, headers)


def _add_session(request: ChatRequest, hints: RequestHints) -> ChatRequest:
    if not hints.session or request.session_id is not None:
        return request
    return structs.replace(request, session_id=hints.session)


def parsing_rules(door: MountedDoor, limits: RequestLimits) -> ParsingRules:
    return ParsingRules(
        reasoning_object=door.reasoning_object,
        router=door.kind == "router",
        reject_unknown=door.reject_unknown,
        reject_long_output=door.reject_long_output,
        max_messages=limits.max_messages,
        work=limits.work,
    )


_PUBLIC_CACHE = {"cache-control": "public, max-age=2"}
_NO_CACHE = {"cache-control": "private, no-store"}


class KeyStatements(Protocol):
    """Source of statements on a caller's key, credits and past requests."""

    async def key(self, caller: Caller) -> key_statements.KeyStatement: ...
    async def credits(self, caller: Caller) -> key_statements.CreditsStatement: ...
    async def generation(self, caller: Caller, id: str) -> key_statements.GenerationStatement: ...


class RouterPages(Struct):
    """Handlers of a router's catalog and keys; ``_key_statements`` is ``None`` without accounts."""

    _pipeline: Pipeline
    _key_statements: KeyStatements | None = None
    _catalog_cache: CatalogCache = msgspec.field(default_factory=CatalogCache)

    async def list_models(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        await self._send_catalog_page(exchange, door, None)

    async def list_embeddings(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        await self._send_catalog_page(exchange, door, None, "output_modalities=embeddings")

    async def list_mine(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller = await authenticated(self._pipeline, exchange, door)
        await self._send_catalog_page(exchange, door, caller)

    async def _send_catalog_page(
        self, exchange: Exchange, door: MountedDoor, caller: Caller | None, default_query: str = ""
    ) -> None:
        name, cache = door.name, _PUBLIC_CACHE
        if caller is not None:
            name, cache = f"{door.name} {caller.key}", _NO_CACHE
        path, query, market = exchange.path, exchange.head.query or default_query, self._pipeline
        page = await self._catalog_cache.page(
            name, path, query, lambda: market.listed(door, caller)
        )
        vary = {"vary": "accept-encoding, authorization"}
        await answers.send_cached(exchange, page, cache | vary)

    async def count(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        count = sum("text" in one.output_modalities for one in self._pipeline.listed(door, None))
        exchange.json({"data": Count(count=count)}, _PUBLIC_CACHE)

    async def show(self, exchange: Exchange, door: MountedDoor, name: str) -> None:
        """Answer ``GET /models/{id}`` with the model, ``/models/{id}/endpoints`` with endpoints."""
        entry = self._pipeline.listing(door, name.removesuffix("/endpoints"))
        whole = name.endswith("/endpoints")
        shown = {"data": entry.with_endpoints()} if whole else entry.entry()
        exchange.json(shown, _PUBLIC_CACHE)

    async def show_wrapped(self, exchange: Exchange, door: MountedDoor, name: str) -> None:
        """Answer ``GET /model/{id}`` with the entry in ``data``."""
        exchange.json({"data": self._pipeline.listing(door, name).entry()}, _PUBLIC_CACHE)

    async def key(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller, teller = await self._authenticate_and_get_key_statements(exchange, door)
        exchange.json({"data": await teller.key(caller)}, _NO_CACHE)

    async def credits(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        caller, teller = await self._authenticate_and_get_key_statements(exchange, door)
        exchange.json({"data": await teller.credits(caller)}, _NO_CACHE)

    async def generation(self, exchange: Exchange, door: MountedDoor, _: str) -> None:
        """Answer ``GET /generation?id=`` with the past request of this request or completion id."""
        caller, teller = await self._authenticate_and_get_key_statements(exchange, door)
        ids = parse_qs(exchange.head.query).get("id", [])
        if len(ids) != 1:
            raise InvalidRequest(
                "`id` is missing; it is the `id` of a completion.",
                code="missing_parameter",
                param="id",
            )
        exchange.json({"data": await teller.generation(caller, ids[0])}, _NO_CACHE)

    async def _authenticate_and_get_key_statements(
        self, exchange: Exchange, door: MountedDoor
    ) -> tuple[Caller, KeyStatements]:
        caller = await authenticated(self._pipeline, exchange, door)
        if self._key_statements is None:
            raise NotFound("There are no accounts here, so nothing is known of keys and money.")
        return caller, self._key_statements
