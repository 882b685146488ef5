"""One record for each request, its contents if its project keeps them, and its log line."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Awaitable, Iterator, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, structs

from causerie.errors import SHUTDOWN, ConstraintNotKept, InternalError, ServiceError
from causerie.metering.ledger import CLIENT_GONE, INTERRUPTED, INTERRUPTED_WORDS, is_charged
from causerie.observe.logging import LogBuffer
from causerie.protocol import events
from causerie.protocol.events import ToolCallDelta as Arguments
from causerie.protocol.money import BILLION, amount_of, exact
from causerie.protocol.request import UNLABELLED, ChatRequest, Labels, TextPart
from causerie.protocol.response import ReplyFormat, ResponseContext

MOST_BYTES = 256 * 1024  # of the request, and of the reply
_FIELDS = ("messages", "tools", "response_format")
_HELD = MOST_BYTES * 15 // 16  # of a reply: what is cut is cut where its JSON still ends
_LOGPROB = 60  # about what one is in JSON
_CHARACTERS = 4  # of a token, about


class Excerpt(Struct, frozen=True):
    """JSON, or its beginning if it is cut."""

    text: str
    cut: bool


class Contents(Struct, eq=False):
    """The contents of one request and its reply, within bounds, for projects that keep them.

    ``completion`` puts the reply together with the ``context``, which may be replaced before.
    """

    _request: ChatRequest
    context: ResponseContext
    _format_reply: ReplyFormat
    _kept_events: list[events.Event] = []
    _is_open_by_choice: dict[int, bool] = {}  # of those that have started
    _reply_usage: events.Usage | None = None
    _kept_size: int = 0
    _is_cut: bool = False

    @property
    def weight(self) -> int:
        """Return about how many bytes of memory the contents take."""
        passed = self._request.passed
        size = self._kept_size + (0 if passed is None else _CHARACTERS * passed.tokens)
        for message in self._request.messages:
            content = message.content or ""
            parts = [TextPart(content)] if isinstance(content, str) else content
            size += sum(len(one.text if isinstance(one, TextPart) else one.url) for one in parts)
        return size

    def see(self, batch: events.Batch) -> None:
        """Keep events; beyond the bound only the ends of choices."""
        self._kept_events += filter(self._note_event_and_decide_to_keep, batch)

    def forget(self) -> None:
        """Forget all events, as the reply starts anew."""
        self._kept_events.clear()
        self._is_open_by_choice.clear()
        self._kept_size, self._is_cut = 0, False

    def request(self) -> Excerpt:
        """Return the request as it was sent: messages, tools and response format.

        Of a request whose body passes through all fields are returned.
        """
        sent = self._request.whole
        fields = _FIELDS if self._request.passed is None else sent
        return _encode_excerpt({name: sent[name] for name in fields if name in sent}, cut=False)

    def reply(self, used: events.Usage) -> Excerpt:
        """Return the reply as a whole, also for a stream; empty if there was none.

        An incomplete choice ends with ``error``; ``used`` is for a reply without its usage.
        """
        if not self._is_open_by_choice:
            return Excerpt("", cut=False)
        broken_off = [one for one, is_open in self._is_open_by_choice.items() if is_open]
        ends = [events.Finished("error", one) for one in broken_off]
        whole = self._format_reply(
            self.context, [*self._kept_events, *ends, self._reply_usage or used]
        )
        return _encode_excerpt(whole, cut=self._is_cut)

    def _note_event_and_decide_to_keep(self, event: events.Event) -> bool:
        if isinstance(event, events.Usage):
            self._reply_usage = event
            return False
        if isinstance(event, events.PassedBytes):  # other events say the same
            return False
        if isinstance(event, events.Finished):
            self._is_open_by_choice[event.choice] = False
            return True
        self._is_open_by_choice.setdefault(event.choice, True)
        self._kept_size += _estimate_event_size(event)
        self._is_cut = self._is_cut or self._kept_size > _HELD
        return not self._is_cut


def _estimate_event_size(event: events.Event) -> int:
    match event:
        case events.TextDelta():
            return len(event.text) + sum(_LOGPROB * (1 + len(one.top)) for one in event.logprobs)
        case events.ReasoningDelta():
            texts = (text for block in event.blocks for text in block.values())
            return len(event.text) + sum(len(one) for one in texts if isinstance(one, str))
        case Arguments():
            return len(event.arguments)
        case _:
            return _LOGPROB


def _encode_excerpt(content: object, *, cut: bool) -> Excerpt:
    whole = msgspec.json.encode(content)
    text = whole[:MOST_BYTES].decode(errors="ignore")  # a character that is cut through
    return Excerpt(text, cut or len(whole) > MOST_BYTES)


_LEFT = "client_gone"
_NOTHING = events.Usage(0, 0)
_LONGEST_NAME = 100
_SPOKEN = frozenset({402, 403, 429})  # about budgets, rights and limits, in our own words


class RequestOutcome(Protocol):
    """Outcome of a request: its targets (``tried``), its reply and its usage.

    ``whole``: the reply came to its end; ``delivered``: the client has a piece of a stream.
    """

    answered_by: str
    continued: int
    queued_seconds: float
    upstream_seconds: float
    whole: bool
    finish: events.FinishReason | None

    @property
    def tried(self) -> Sequence[object]: ...
    @property
    def delivered(self) -> bool: ...
    def usage(self) -> events.Usage: ...


class Record(Struct):
    """The facts of one request; contents only where its project keeps them."""

    request_id: str
    door: str
    key: str
    model: str = ""
    operation: str = "chat"  # name of the API that was asked
    entry: str = ""  # id of the entry of the model: of one that a wildcard names, the wildcard's
    stream: bool = False
    early_start: bool = False  # its status was sent before the first content
    served_by: str = ""
    attempts: int = 0
    continued: int = 0
    tried: Sequence[str] = ()  # who was asked, with why each did not do, unless the only one did
    status: int = CLIENT_GONE
    code: str | None = _LEFT
    finish: events.FinishReason | None = None
    used: events.Usage = _NOTHING
    queue_seconds: float = 0.0
    upstream_seconds: float = 0.0
    first_token_seconds: float | None = None
    overhead_seconds: float = 0.0  # of these, what was not spent with any target
    duration_seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    outcome: RequestOutcome | None = None  # asked once the request has ended
    project: str = ""
    user: str = ""
    reason: str = ""  # a failure's class, and its words if they cannot quote the request
    error_class: str = ""  # of a failure at a target
    param: str | None = None
    labels: Labels = UNLABELLED
    held: object = None  # what is held for it, for whoever settles
    span: object = None  # its part of a trace, for whoever traces
    trace_id: str = ""  # of that trace
    contents: Contents | None = None
    cost: int = 0  # of its tokens in billionths, at the prices when it began
    cache_miss: str = ""  # why less of the prompt was cached than the turn before had computed
    asked: str = ""  # the name that was asked for, where no model was chosen: words of the client
    id: str = ""  # of its row in the books, where it was written down as it began

    def refused_model(self, name: str) -> None:
        """Keep the name of a model that was refused, cut and in printable characters."""
        shown = "".join(char if char.isprintable() else "\ufffd" for char in name[:_LONGEST_NAME])
        self.asked = shown if len(name) <= _LONGEST_NAME else f"{shown}…"

    def first_token(self, elsewhere: float) -> float:
        """Record the time of the first token; return its seconds beyond those ``elsewhere``."""
        self.first_token_seconds = seconds = time.monotonic() - self.started
        self.overhead_seconds = overhead = seconds - elsewhere if seconds > elsewhere else 0.0
        return overhead

    def begin_anew(self) -> None:
        """Forget the outcome, as another model gets the request."""
        self.outcome = self.first_token_seconds = self.contents = None
        self.cache_miss = ""
        self.cost = 0

    def settle(self) -> None:
        """Set duration, status, usage and the other facts that are known only at the end."""
        self.duration_seconds = time.monotonic() - self.started
        outcome = self.outcome
        if outcome is None:
            return
        self.outcome = None
        self.served_by, self.continued = outcome.answered_by, outcome.continued
        self.attempts = len(outcome.tried)
        if self.attempts > 1 or self.error_class:
            self.tried = [str(one) for one in outcome.tried]
        self.queue_seconds, self.upstream_seconds = outcome.queued_seconds, outcome.upstream_seconds
        self.finish = outcome.finish
        self.used = used = outcome.usage()
        if outcome.whole and self.code == _LEFT:  # no failure came after it
            self.status, self.code = 200, None
            return
        if self.code == ConstraintNotKept.code:  # for which all of them were drawn
            self.used = structs.replace(used, completion=used.completion + used.discarded)
        if self.code != _LEFT and not outcome.delivered:
            self.first_token_seconds = None  # it stayed here

    def charged_despite(self, failure: Exception) -> bool:
        """Return true if a request that fails before :meth:`settle` is charged."""
        outcome = self.outcome
        if outcome is None:
            return False
        used = outcome.usage()
        worked = isinstance(failure, ConstraintNotKept)
        output = used.completion + used.units
        return is_charged(used.prompt, output, worked=worked, delivered=outcome.delivered)

    def ended(self, failure: BaseException) -> None:
        """Record how a request failed; a cancellation is a gone client unless the service stops."""
        if isinstance(failure, ServiceError):
            self.failed(failure)
        elif isinstance(failure, CancelledError) and SHUTDOWN in failure.args:
            self.status, self.code = InternalError.status, INTERRUPTED
            self.reason = INTERRUPTED_WORDS
        elif isinstance(failure, Exception):
            self.status, self.code = InternalError.status, InternalError.code

    def failed(self, failure: ServiceError) -> None:
        self.status, self.code, self.param = failure.status, failure.code, failure.param
        self.error_class = failure.error_class or ""
        words = failure.message if failure.status in _SPOKEN or failure.status >= 500 else ""
        self.reason = ": ".join(filter(None, (self.error_class, words)))


class RecordSink(Protocol):
    def write(self, record: Record) -> None: ...


class UsageSettlement(Protocol):
    """Accounting of requests: writes that a request begins, then settles and stores its usage."""

    def begin_request(self, record: Record, prompt: int) -> None:
        """Write that a request of about ``prompt`` tokens goes to a target.

        Raises :class:`ServiceError` if its usage could not be recorded.
        """

    async def enter(self, record: Record) -> None:
        """Store the record; return once it is safe, or raise :class:`ServiceError`."""


class Meter:
    """Writes records to every sink, and enters them in the ledger, if any."""

    def __init__(
        self, sinks: Sequence[RecordSink], bookkeeping: UsageSettlement | None = None
    ) -> None:
        self.sinks = tuple(sinks)
        self.bookkeeping = bookkeeping

    def begin(self, record: Record) -> None:
        """Let a subclass note that a request begins; :meth:`write` its record however it ends."""

    def begin_request(self, record: Record, prompt: int) -> None:
        """Write to the ledger that a request goes to a target; raise :class:`ServiceError`."""
        if self.bookkeeping is not None:
            self.bookkeeping.begin_request(record, prompt)

    def write(self, record: Record) -> Awaitable[None] | None:
        """Write an ended request's record; the awaitable returned, if any, ends once it is safe."""
        record.settle()
        if self.bookkeeping is not None:
            return self._enter_record(record, self.bookkeeping)
        self.tell(record)
        return None

    async def _enter_record(self, record: Record, bookkeeping: UsageSettlement) -> None:
        try:
            await bookkeeping.enter(record)
        except Exception as failure:
            record.ended(failure)  # so the client is told, whatever its reply was
            raise
        finally:
            self.tell(record)

    def tell(self, record: Record) -> None:
        """Write a record to every sink, once the outcome of its request is final."""
        for sink in self.sinks:
            sink.write(record)


# Select Graphic Rendition (ECMA-48, section 8.3.117).
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_RED, _GREEN, _YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"


class RequestLine(Struct, frozen=True, kw_only=True):
    """The JSON log line of a request; the last fields are left out where they have no value."""

    time: datetime
    level: str
    event: str = "request"
    request_id: str
    door: str
    key: str
    model: str
    served_by: str
    attempts: int
    continued: int
    tried: Sequence[str]
    stream: bool
    status: int
    code: str | None
    finish: str | None
    prompt: int
    completion: int
    cached: int
    reasoning: int
    estimated: bool
    queue_ms: float
    first_token_ms: float | None
    duration_ms: float
    trace_id: str | UnsetType = UNSET
    cost: float | UnsetType = UNSET
    error_class: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    early_start: bool | UnsetType = UNSET
    written: int | UnsetType = UNSET
    discarded: int | UnsetType = UNSET
    operation: str | UnsetType = UNSET
    units: int | UnsetType = UNSET


class RequestLog:
    """Writes a log line for each record, which is a warning if the status is 500 or more."""

    def __init__(self, log_buffer: LogBuffer) -> None:
        self._queue_request_log_line = log_buffer.tell
        self.shows_door = False
        """The line on a terminal names the door."""

    def write(self, record: Record) -> None:
        self._queue_request_log_line("warning" if record.status >= 500 else "info", self, record)

    def line(self, subject: Record, when: datetime) -> RequestLine:
        """Return a record's JSON log line; times are rounded to a tenth of a millisecond."""
        used, first = subject.used, subject.first_token_seconds
        return RequestLine(
            time=when,
            level="warning" if subject.status >= 500 else "info",
            request_id=subject.request_id,
            door=subject.door,
            key=subject.key,
            model=subject.model or subject.asked,
            served_by=subject.served_by,
            attempts=subject.attempts,
            continued=subject.continued,
            tried=subject.tried,
            stream=subject.stream,
            status=subject.status,
            code=subject.code,
            finish=subject.finish,
            prompt=used.prompt,
            completion=used.completion,
            cached=used.cached,
            reasoning=used.reasoning,
            estimated=used.estimated,
            queue_ms=_round_to_tenth_milliseconds(subject.queue_seconds),
            first_token_ms=None if first is None else _round_to_tenth_milliseconds(first),
            duration_ms=_round_to_tenth_milliseconds(subject.duration_seconds),
            trace_id=subject.trace_id or UNSET,
            cost=subject.cost / BILLION if subject.cost else UNSET,
            error_class=subject.error_class or UNSET,
            reason=subject.reason or UNSET,
            early_start=subject.early_start or UNSET,
            written=used.written or UNSET,
            discarded=used.discarded or UNSET,
            operation=UNSET if subject.operation == "chat" else subject.operation,
            units=used.units or UNSET,
        )

    def text(self, subject: Record, clock: str, *, colours: bool) -> str:
        """Return a record's log line for a terminal, without unknown facts."""
        failure = [subject.code, subject.error_class] if subject.code is not None else []
        if failure and subject.status >= 500:  # other log lines are found by the id
            failure.append(subject.request_id)
        words = [
            f"{subject.status} {subject.model or subject.asked or '-'}",
            *filter(None, failure),
            *_yield_usage_words_for_terminal(subject),
            *([subject.operation] if subject.operation != "chat" else ()),
            *(["early start"] if subject.early_start else ()),
            *([subject.door] if self.shows_door else ()),
        ]
        text = "  ".join(words)
        if not colours:
            return f"{clock} {text}"
        colour = _GREEN if subject.status < 400 else _YELLOW if subject.status < 500 else _RED
        return f"{_DIM}{clock}{_RESET} {colour}{text[:3]}{_RESET}{text[3:]}"


def _yield_usage_words_for_terminal(record: Record) -> Iterator[str]:
    used, first, seconds = record.used, record.first_token_seconds, record.duration_seconds
    if used.prompt or used.completion:
        yield f"{used.prompt} in, {used.completion} out"
    if first is not None and record.stream:
        yield f"TTFT {first:.2f} s"
    spent = seconds - first if first is not None and record.stream else seconds
    if used.completion and spent > 0:
        yield f"{used.completion / spent:.1f} tok/s"
    yield f"{seconds:.2f} s"
    if record.cost:
        yield exact(amount_of(record.cost))


def _round_to_tenth_milliseconds(seconds: float) -> float:
    return int(seconds * 10_000 + 0.5) / 10
