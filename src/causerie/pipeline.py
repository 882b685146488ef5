"""Answer a request, stage by stage, from the door to the record of its usage. Read this first.

    which door · who (401) · which model (403, 404) · within its limits (429) and budgets (402)
    · which target, is there room (503)
    · generate (400, 502, 503) · meter

The stages do not know each other; they meet here only. Until the first content-bearing event a
failure has its real status. However an answer ends, the engine is freed and the usage is written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from msgspec import UNSET, Struct, structs

from causerie.access.admission import SlotQueue
from causerie.access.keys import AccountPorts, Caller, FreeAllowance, FreeScopes, Locked, StaticKeys
from causerie.access.limits import Estimate, Lease, RateLimiter, RateScope, SpentProviders, tell
from causerie.catalog.catalog import Catalog, Entry, WildcardModel, entries_of, is_over, named_entry
from causerie.catalog.listing import Listing
from causerie.errors import (
    ContextLengthExceeded,
    Forbidden,
    NotFound,
    OverBudget,
    Overloaded,
    RateLimited,
    ServiceError,
    UpstreamFailed,
    forget_frames,
)
from causerie.metering.meter import Contents, Meter, Record
from causerie.protocol.events import BatchSink
from causerie.protocol.model_entries import Model, free_name, is_free
from causerie.protocol.money import BILLION
from causerie.protocol.request import UNLABELLED, ChatRequest, Labels, Tool, prompt_estimate
from causerie.protocol.response import (
    CompletionIdentity,
    ReplyFormat,
    Response,
    ResponseContext,
    ResponseSink,
)
from causerie.protocol.targets import Candidate
from causerie.routing.router import Execution, Router
from causerie.routing.target_selector import Attempt
from causerie.routing.target_state import wait_of


class PipelineDoor(Locked, Protocol):
    """The parts of a door that the pipeline reads: its keys, its models, and accepted fields."""

    @property
    def models(self) -> frozenset[str] | None: ...
    @property
    def reasoning_object(self) -> bool: ...
    @property
    def accounts(self) -> bool:
        """Return true if the door accepts the API keys of accounts."""

    @property
    def separate_caches(self) -> bool:
        """Return true if the door keeps projects from reusing each other's cached prompts."""


CallSink = Callable[[str, Callable[[], Sequence[tuple[str, str]]], Sequence[Tool]], None]
"""Takes a target's name, what gives its delivered calls, and the tools that were offered."""

_FULL = (Overloaded, RateLimited)
_OF_THE_MODEL = frozenset(
    {"unsupported_parameter", "unsupported_operation", "context_length_exceeded"}
)


class _Resolved(Struct, frozen=True):
    door: PipelineDoor
    model: Entry
    scopes: Sequence[RateScope]
    free: bool


class _Exchange(Struct, frozen=True):
    door: PipelineDoor
    caller: Caller
    request: ChatRequest
    identity: CompletionIdentity
    begin: ResponseSink
    completion: ReplyFormat
    record: Record
    goes_on: Callable[[ServiceError], bool] | None = None
    tried: list[Attempt] = []
    headers: Mapping[str, str] = {}  # more of them for the response


@dataclass(frozen=True, slots=True)
class Scopes:
    """Rate limits of models by id, of doors by name, and of free variants of models."""

    models: Mapping[str, RateScope]
    doors: Mapping[str, RateScope]
    free: FreeScopes | None = None  # of accounts, for the free variants of models

    def of(self, door: str, model: str) -> Sequence[RateScope]:
        of_model, of_door = self.models.get(model), self.doors.get(door)
        if of_model is None:
            return () if of_door is None else (of_door,)
        return (of_model,) if of_door is None else (of_model, of_door)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """All stages of answering a request, in their order."""

    keys: StaticKeys
    catalog: Catalog
    limits: RateLimiter
    scopes: Scopes
    router: Router
    meter: Meter
    members: AccountPorts | None = None  # `None` without accounts
    check_calls: CallSink | None = None  # gets every delivered reply to a request with tools
    _choices_by_name: dict[tuple[str, str], _Resolved] = field(default_factory=dict, init=False)
    _count_queue: SlotQueue = field(
        default_factory=lambda: SlotQueue(
            "that counts tokens", lambda: 2, max_waiting=64, max_wait_seconds=10.0
        ),
        init=False,
    )

    async def answer(
        self,
        door: PipelineDoor,
        caller: Caller,
        request: ChatRequest,
        identity: CompletionIdentity,
        response: Response,
        labels: Labels = UNLABELLED,
    ) -> None:
        """Send the batches of an answer to the sink that ``response.begin`` returns.

        That is called with the first content-bearing event, and again if a plain answer starts
        anew. At the return the answer has been delivered and its usage recorded. Raises
        ``ServiceError``.
        """
        record = Record(
            identity.request_id,
            door.name,
            caller.key,
            operation=identity.api,
            project=caller.project,
            user=caller.user,
            labels=labels,
        )
        self.meter.begin(record)
        if door.separate_caches:
            request = scoped(door, caller, request)
        begin, completion = response.begin, response.completion
        exchange = _Exchange(door, caller, request, identity, begin, completion, record)
        try:
            if request.fallbacks:
                await self._deliver_answer_with_fallbacks(exchange)
            else:
                await self._deliver_answer_by_name(exchange, request.model)
        except BaseException as failure:
            record.ended(failure)
            raise
        finally:
            if request.stream and response.early_start:
                record.early_start = True
            if (entered := self.meter.write(record)) is not None:
                await entered

    async def count_tokens(
        self, door: PipelineDoor, caller: Caller, request: ChatRequest
    ) -> tuple[int, bool]:
        """Return the number of tokens of a prompt, and whether it was counted, not estimated.

        They are estimated for targets that cannot count. Raises ``ServiceError``.
        """
        resolved = self._resolve_model(door, caller, request.model)
        model = resolved.model
        request = model.adapted(scoped(door, caller, request.without_hints(model.parameters)))
        candidates = self.able(model, request)
        if caller.access is not None:
            candidates = caller.access.kept(model, candidates)
        async with self._count_queue.enter():
            try:
                tokens = await self.router.count_tokens(candidates, request)
            except ContextLengthExceeded as long:
                least = long.metadata["prompt_tokens"]
                assert isinstance(least, int)
                return least, False
        return (prompt_estimate(request), False) if tokens is None else (tokens, True)

    def _deliver_answer_by_name(self, exchange: _Exchange, model_name: str) -> Awaitable[None]:
        resolved = self._resolve_requested_model(exchange, model_name)
        if exchange.request.hints:
            supported = exchange.request.without_hints(resolved.model.parameters)
            exchange = structs.replace(exchange, request=supported)
        record, model, request = exchange.record, resolved.model, exchange.request
        record.model, record.entry, record.stream = model.recorded, model.id, request.stream
        days = self.members.free_days if resolved.free and self.members is not None else None
        if days is not None and exchange.caller.project:
            return self._deliver_answer_within_free_allowance(exchange, resolved, days)
        return self._deliver_answer_by_model(exchange, resolved)

    async def _deliver_answer_within_free_allowance(
        self, exchange: _Exchange, resolved: _Resolved, allowance: FreeAllowance
    ) -> None:
        hold = await allowance.take(exchange.caller.project)
        with hold:
            try:
                exchange = structs.replace(exchange, headers=hold.headers)
                await self._deliver_answer_by_model(exchange, resolved)
            except Exception as failure:
                hold.charged = exchange.record.charged_despite(failure)
                raise

    def _deliver_answer_by_model(self, exchange: _Exchange, resolved: _Resolved) -> Awaitable[None]:
        model, scopes = resolved.model, resolved.scopes
        request = model.adapted(exchange.request)
        if self.members is None and not resolved.free:
            candidates = model.candidates(request)
        else:
            candidates, scopes = self._find_targets_and_scopes(exchange.caller, resolved, request)
        if scopes:
            return self._deliver_answer_within_limits(scopes, candidates, exchange, model, request)
        return self._deliver_from_candidates(candidates, exchange, model, request)

    async def _deliver_answer_within_limits(
        self,
        scopes: Sequence[RateScope],
        candidates: Sequence[Candidate],
        exchange: _Exchange,
        model: Entry,
        request: ChatRequest,
    ) -> None:
        need = Estimate(request, candidates)
        with self.limits.take_now(scopes, need) or await self.limits.take(scopes, need) as lease:
            lease.spared = exchange.goes_on
            await self._deliver_from_candidates(candidates, exchange, model, request, need, lease)

    async def _deliver_from_candidates(
        self,
        candidates: Sequence[Candidate],
        exchange: _Exchange,
        model: Entry,
        request: ChatRequest,
        estimate: Estimate | None = None,
        lease: Lease | None = None,
    ) -> None:
        record, original = exchange.record, exchange.request
        if self.members is not None:
            estimate = estimate or Estimate(request, candidates)
            await self._reserve_budget_and_begin_record(self.members, exchange, model, estimate)
        execution = record.outcome = self.router.generate(
            candidates, request, record.contents, exchange.tried
        )
        try:
            attempt = await execution.begin()
            while True:
                headers = answer_headers(record, original, request, model, execution, attempt)
                if lease is not None:
                    tell(lease.limit_statuses(), headers)
                headers |= exchange.headers
                context = _build_and_keep_response_context(exchange, model, execution, attempt)
                try:
                    await execution.stream(exchange.begin(headers, context))
                    if execution.continued:  # those of a plain answer have not gone out yet
                        headers |= target_headers(execution)
                    return
                except (UpstreamFailed, Overloaded) as failure:
                    if request.stream:
                        raise
                    attempt = await execution.again(failure)
        except ServiceError as failure:
            failure.headers |= change_headers(original, request, model, failure.changes)
            raise
        finally:
            try:
                self._end_execution_and_settle_lease(lease, execution, model, record)
            finally:
                if execution.attempt is not None:
                    await execution.attempt.leave()

    def _find_targets_and_scopes(
        self, caller: Caller, resolved: _Resolved, request: ChatRequest
    ) -> tuple[Sequence[Candidate], Sequence[RateScope]]:
        model, scopes, free = resolved.model, resolved.scopes, self.scopes.free
        candidates = self.permitted(caller, model, self.able(model, request))
        if resolved.free and free is not None:
            scopes = [free.of(caller), *scopes]
        if self.members is not None:
            scopes = [*self.members.allowances.scopes(caller, model.recorded), *scopes]
        return candidates, scopes

    def permitted(
        self, caller: Caller, model: Entry, candidates: Sequence[Candidate]
    ) -> Sequence[Candidate]:
        """Return the targets that the caller may use, of providers whose budget is not spent."""
        if caller.access is not None:
            candidates = caller.access.kept(model, candidates)
        if self.members is not None and (spent := self.members.allowances.spent_providers):
            candidates = unspent(model, candidates, spent)
        return candidates

    async def _reserve_budget_and_begin_record(
        self, account_ports: AccountPorts, exchange: _Exchange, model: Entry, estimate: Estimate
    ) -> None:
        # Reserve the budget, write down that it begins, and keep its contents if they are wanted.
        record, request = exchange.record, exchange.request
        record.held = await account_ports.allowances.reserve(
            exchange.caller, model.id, estimate, record.model, record.labels.tag
        )
        self.meter.begin_request(record, estimate().input)
        if exchange.caller.recorded:
            context = ResponseContext(exchange.identity, request.model, "")
            record.contents = Contents(request, context, exchange.completion)

    def _end_execution_and_settle_lease(
        self, lease: Lease | None, execution: Execution, model: Entry, record: Record
    ) -> None:
        used = execution.end()
        if lease is not None:
            lease.settle(used, reached=execution.reached())
        if self.members is None:  # else the books tell what it costs
            record.cost = model.cost(execution.served_by, used)
        tools = execution.request.tools
        if tools and self.check_calls is not None:
            self.check_calls(execution.served_by, execution.calls, tools)

    async def _deliver_answer_with_fallbacks(self, exchange: _Exchange) -> None:
        named = (exchange.request.model, *exchange.request.fallbacks)
        models = {name: self._resolve_requested_model(exchange, name).model for name in named}
        *others, last = [name for name in named if not is_over(models[name])] or named[:1]
        started = False

        def begin(headers: Mapping[str, str], context: ResponseContext) -> BatchSink:
            nonlocal started
            started = exchange.request.stream
            return exchange.begin(headers, context)

        def goes_on(failure: ServiceError) -> bool:
            return not started and another_may(failure)

        record = exchange.record
        inner = structs.replace(exchange, begin=begin, goes_on=goes_on)
        full: list[ServiceError] = []
        for name in others:
            try:
                await self._deliver_answer_by_name(inner, name)
                return
            except ServiceError as failure:
                if not goes_on(failure):
                    raise
                forget_frames(failure)
                if isinstance(failure, _FULL):
                    full.append(failure)
                record.begin_anew()
                if self.members is not None and record.held is not None:
                    self.members.allowances.release(record.held)
                    record.held = None
        try:
            request = structs.replace(exchange.request, fallbacks=())
            inner = structs.replace(exchange, request=request, begin=begin)
            await self._deliver_answer_by_name(inner, last)
        except _FULL as failure:
            if started or (soonest := min((failure, *full), key=wait_of)) is failure:
                raise
            raise soonest from failure

    def allowed(self, door: PipelineDoor, caller: Caller, name: str) -> Entry:
        """Return the model of a name; raise :class:`NotFound` or :class:`Forbidden`."""
        return self._resolve_model(door, caller, name).model

    def _resolve_requested_model(self, exchange: _Exchange, model_name: str) -> _Resolved:
        try:
            return self._resolve_model(exchange.door, exchange.caller, model_name)
        except (NotFound, Forbidden) as failure:
            exchange.record.refused_model(model_name)
            if model_name in exchange.request.fallbacks or "model" not in exchange.request.params:
                failure.param = "models"
            raise

    def _resolve_model(self, door: PipelineDoor, caller: Caller, model_name: str) -> _Resolved:
        resolved = self._choices_by_name.get((door.name, model_name))
        if resolved is None or resolved.door is not door:  # a reload may come meanwhile
            # Free variants have limits of their own, so that they never block a paid request.
            model = self.catalog.resolve(door.models, model_name)
            free = is_free(model.id)
            limited = free_name(door.name) if free and self.scopes.free is not None else door.name
            resolved = _Resolved(door, model, self.scopes.of(limited, model.id), free)
            if not isinstance(resolved.model, WildcardModel):  # of whose names there is no end
                self._choices_by_name[door.name, model_name] = resolved
        if caller.models is not None and caller.models.isdisjoint(resolved.model.names):
            may = ", ".join(sorted(caller.models)) or "none"
            raise Forbidden(
                f"The key {caller.key} may not use the model {resolved.model.id}; it may use: "
                f"{may[:500]}.",
                code="model_not_allowed",
                param="model",
            )
        if caller.access is not None:
            caller.access.check(resolved.model)
        return resolved

    def able(self, model: Entry, request: ChatRequest) -> Sequence[Candidate]:
        """Return targets that can take an adapted request; raise ``ServiceError`` if none can."""
        candidates = model.candidates(request)
        if self.scopes.free is not None and is_free(model.id):
            candidates = self.scopes.free.spare(model.id, candidates)
        return candidates

    def listed(self, door: PipelineDoor, caller: Caller | None) -> Sequence[Listing]:
        """Return the catalog entries of a router door that the caller, if one is given, may use."""
        mine = None if caller is None else caller.models
        return [
            one
            for one in self.catalog.listed(door.models)
            if (mine is None or not mine.isdisjoint(one.names)) and _access_allows(caller, one)
        ]

    def listing(self, door: PipelineDoor, name: str) -> Listing:
        """Return an entry of the router's catalog; raise :class:`NotFound`."""
        entry = self.catalog.resolve(door.models, name)
        if not isinstance(entry, Listing) or entry.is_over:
            raise NotFound(
                f"There is no model {name[:200]} in the catalog; GET /models lists those that "
                "there are.",
                code="model_not_found",
                param="model",
            )
        return entry

    def models(self, door: PipelineDoor, caller: Caller | None) -> Sequence[Model]:
        mine = None if caller is None else caller.models
        entries: list[Model] = []
        for model, names in self.catalog.shown(door.models, mine):
            allowed = [name for name in names if _access_allows(caller, named_entry(model, name))]
            entries += entries_of(model, allowed, reasoning_object=door.reasoning_object)
        return entries

    def shown(self, door: PipelineDoor, caller: Caller | None, name: str) -> Model:
        """Return the ``GET /models`` entry of a model by any of its names, or raise an error."""
        if caller is None:
            model = self.catalog.resolve(door.models, name)
        else:
            model = self.allowed(door, caller, name)
        return model.entry(reasoning_object=door.reasoning_object)


def scoped(door: PipelineDoor, caller: Caller, request: ChatRequest) -> ChatRequest:
    """Return the request with the cache scope of the project or key, if the door uses scopes."""
    if not door.separate_caches or not (owner := caller.project or caller.key):
        return request
    return structs.replace(request, cache_scope=_derive_cache_scope(owner))


@lru_cache(maxsize=10_000)
def _derive_cache_scope(owner_id: str) -> str:
    # The same opaque name in every process; servers of others may see it.
    return blake2b(owner_id.encode(), digest_size=16, person=b"cache scope").hexdigest()


def _access_allows(caller: Caller | None, model: Entry) -> bool:
    access = None if caller is None else caller.access
    return access is None or not access.verdict(model).refusal


def unspent(
    model: Entry, candidates: Sequence[Candidate], spent: SpentProviders
) -> Sequence[Candidate]:
    """Return candidates of providers not in ``spent``; raise :class:`OverBudget` if none stays."""
    resting = {one.target: one.provider for one in model.offers if one.provider in spent}
    found = [one for one in candidates if one.name not in resting]
    if found or not candidates:
        return found
    provider = resting[candidates[0].name]
    end = spent[provider]
    anew = "" if end is None else f" It begins anew at {end:%Y-%m-%dT%H:%MZ}."
    raise OverBudget(f"The budget of this service for the provider {provider} is spent.{anew}")


def another_may(failure: ServiceError) -> bool:
    """Return true if another model may succeed with a request that failed with this error."""
    kinds = (OverBudget, Overloaded, RateLimited, UpstreamFailed)
    return isinstance(failure, kinds) or failure.code in _OF_THE_MODEL


def _build_and_keep_response_context(
    exchange: _Exchange, model: Entry, execution: Execution, attempt: Attempt
) -> ResponseContext:
    request = exchange.request
    provider = model.provider(execution.served_by) if isinstance(model, Listing) else UNSET
    context = ResponseContext(
        exchange.identity,
        request.model,
        attempt.answer.fingerprint,
        request.thinking.visible,
        exchange.door.reasoning_object,
        # At the end of the reply, by the target that served it then.
        None
        if provider is UNSET
        else lambda usage: model.cost(execution.served_by, usage) / BILLION,
        provider,
        execution.usage,
        request.function_names,
    )
    if exchange.record.contents is not None:
        exchange.record.contents.context = context
    return context


_TENTHS = [f"{tenths // 10}.{tenths % 10}" for tenths in range(1000)]
_NO_WAIT = "0.0, route;dur=0.0"
_MAX_CHANGES_LENGTH = 2048  # of the header that lists the changes


def answer_headers(
    record: Record,
    asked: ChatRequest,
    request: ChatRequest,
    model: Entry,
    execution: Execution,
    attempt: Attempt,
) -> dict[str, str]:
    """Return the response headers and record the first token; ``request`` is ``asked``, adapted."""
    queue, upstream = attempt.queued_seconds, attempt.upstream_seconds
    route = execution.routed_seconds(attempt) if len(execution.tried) > 1 else 0.0
    overhead = record.first_token(queue + route + upstream)
    waited = (
        f"{_format_milliseconds(queue)}, route;dur={_format_milliseconds(route)}"
        if queue or route
        else _NO_WAIT
    )
    headers = target_headers(execution)
    headers["server-timing"] = (
        f"queue;dur={waited}, upstream;dur={_format_milliseconds(upstream)}, "
        f"overhead;dur={_format_milliseconds(overhead)}"
    )
    if model.recorded != request.model:
        headers["x-served-model"] = model.recorded
    report = attempt.answer.cache_report
    if report is not None and (cache := report(f"{record.door} {record.project or record.key}")):
        headers["x-cache"] = str(cache)
        record.cache_miss = "" if cache.miss is None else str(cache.miss)
    answer = attempt.answer
    changes = answer.changes
    if attempt.request is not request:
        changes = attempt.changes(request, changes)
    if changes or asked.changes or request is not asked:
        headers |= change_headers(asked, request, model, changes, verbatim=answer.verbatim)
    return headers


def change_headers(
    asked: ChatRequest,
    request: ChatRequest,
    model: Entry,
    changes: Sequence[str],
    *,
    verbatim: bool = False,
) -> dict[str, str]:
    """Return the header that lists request changes, without the parser's if ``verbatim``."""
    if request is not asked:
        changes = [*model.changes(asked), *changes]
    if asked.changes and not verbatim:
        changes = [*asked.changes, *changes]
    if not changes:
        return {}
    text = ", ".join(changes)
    if len(text) > _MAX_CHANGES_LENGTH:
        cut = text[:_MAX_CHANGES_LENGTH].rpartition(", ")[0]
        text = f"{cut}, and {len(changes) - cut.count(', ') - 1} more changes"
    return {"x-request-changes": text}


def target_headers(execution: Execution) -> dict[str, str]:
    return {"x-served-by": execution.answered_by, "x-attempts": str(len(execution.tried))}


def _format_milliseconds(seconds: float) -> str:
    try:  # a table, since formatting a number takes long
        return _TENTHS[int(seconds * 10_000 + 0.5)]
    except IndexError:
        return f"{seconds * 1000:.1f}"
