"""Interview of one model: its questions, asked in turn within time limits, and its result.

The client sends one request and records what comes back, within limits of time and size. Any
behaviour of a server ends in a :class:`ProbeReply`: one that hangs, sends without end or
breaks off is recorded as such. The key is cut out of every reply, so that nothing behind this
can show it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Protocol, Self, get_args
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from causerie.errors import ServiceError
from causerie.http.client import HttpClient, Reach
from causerie.http.client_connection import HttpResponse, TransportFailed
from causerie.probe.question import (
    BUSY,
    GOOD,
    Ended,
    Grade,
    ProbeQuestion,
    ProbeReply,
    ProbeRequest,
    ProbeVerdict,
    RecordedExchange,
    Subject,
    Thinking,
    dig,
    exchange,
    partly,
    step,
    unclear,
)
from causerie.probe.questions import QUESTIONS
from causerie.probe.questions.listing import (
    LONGEST_ASKED,
    TOO_LONG,
    entries,
    entry_of,
    longest_prompt,
)
from causerie.probe.questions.sampling import ROOM
from causerie.protocol.alike import alike
from causerie.protocol.parameters import ParsingRules
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import parse

_KEPT = (
    "content-type",
    "retry-after",
    "server",
    "www-authenticate",
    "x-request-changes",
    "x-request-id",
)
_MAX_HEADER = 300
_SHORTEST_SECRET = 8  # shorter is a placeholder, which may be any word of a reply


@dataclass(frozen=True, slots=True)
class ProbeBounds:
    """Limits of one request: its duration, and the bytes of its reply."""

    seconds: float = 60.0
    bytes: int = 1024 * 1024
    listing_bytes: int = 16 * 1024 * 1024


class ProbeClient:
    """Asks one server, one request at a time. Use as an async context manager."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        reach: Reach | None = None,
        bounds: ProbeBounds = ProbeBounds(),
    ) -> None:
        self._api_key = key
        self._secret_spellings: Sequence[str] = ()
        if key and len(key) >= _SHORTEST_SECRET:
            escaped = msgspec.json.encode(key).decode()[1:-1]
            spelled = {key, escaped, quote(key, safe=""), quote(key)}
            self._secret_spellings = sorted(spelled, key=len, reverse=True)
        self._reply_limits = bounds
        reach = reach or Reach()
        self._http_client = HttpClient(base_url, reach)
        parts = urlsplit(base_url)
        self._root_http_client = HttpClient(f"{parts.scheme}://{parts.netloc}", reach)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http_client.close()
        await self._root_http_client.close()

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """Send a request and return its reply, within ``seconds`` and the limit of the bounds."""
        await asyncio.sleep(ask.wait_seconds)
        limit = min(seconds or self._reply_limits.seconds, self._reply_limits.seconds)
        patience = limit if ask.leave_after is None else min(limit, ask.leave_after)
        status, headers, body = 0, dict[str, str](), bytearray()
        client = self._root_http_client if ask.at_root else self._http_client
        began = time.monotonic()
        ended: Ended
        try:
            async with asyncio.timeout(patience):
                response = await client.send(
                    ask.method, ask.path, self._build_headers(ask), ask.body
                )
                status, headers = response.status, dict(response.headers)
                with closing(response):
                    ended, trouble = await self._read_into_body_and_return_end(ask, response, body)
        except TimeoutError:
            ended = "late" if ask.leave_after is None else "left"
            what = "the answer had not ended after" if status else "no answer within"
            trouble = f"{what} {patience:g} s"
        except TransportFailed as failure:
            ended, trouble = "broken", str(failure)
        seconds = time.monotonic() - began
        return self._redact_key_and_drop_headers(
            ProbeReply(status, headers, bytes(body), ended, trouble, seconds)
        )

    async def _read_into_body_and_return_end(
        self, request: ProbeRequest, response: HttpResponse, body: bytearray
    ) -> tuple[Ended, str]:
        limits = self._reply_limits
        most = limits.bytes if request.method == "POST" else limits.listing_bytes
        while piece := await response.piece():
            body += piece
            if request.leave_at_data and b"data:" in body:
                return "left", ""
            if len(body) > most:
                return "large", f"did not end: more than {most} bytes came"
        return "whole", ""

    def _build_headers(self, request: ProbeRequest) -> list[tuple[str, str]]:
        headers = [("accept", "*/*"), ("user-agent", "causerie-probe")]
        if request.body:
            headers.append(("content-type", "application/json"))
        if request.credential == "ours" and self._api_key is not None:
            headers.append(("authorization", f"Bearer {self._api_key}"))
        if request.credential == "wrong":
            headers.append(("authorization", "Bearer not-a-key-of-this-server"))
        return headers

    def _redact_key_and_drop_headers(self, reply: ProbeReply) -> ProbeReply:
        body, trouble = reply.body, reply.trouble
        came = reply.headers.items()
        headers = {name: value[:_MAX_HEADER] for name, value in came if name in _KEPT}
        for secret in self._secret_spellings:
            body = body.replace(secret.encode(), b"***")
            headers = {name: value.replace(secret, "***") for name, value in headers.items()}
            trouble = trouble.replace(secret, "***")
        return replace(reply, headers=headers, body=body, trouble=trouble)


# The interview.

_MAX_SILENT = 3
# Operations by the question that shows each.
_OPERATIONS: Mapping[str, str] = {
    name: "chat" if name == "completion" else name
    for name in ("completion", "embeddings", "rerank", "completions")
}


class RequestSender(Protocol):
    """Interface to a sender of requests."""

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """Send a request; return its reply within ``seconds``, whatever the server does."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time for all questions; longest wait and number of tries for a busy server."""

    total_seconds: float = 1800.0
    busy_seconds: float = 60.0
    busy_tries: int = 4


class Found(Struct, frozen=True, kw_only=True):
    """One question and its verdict, which says whether the parameters ``decides`` are supported."""

    id: str
    rule: str
    question: str
    decides: tuple[str, ...]
    answer: Grade
    how: str
    evidence: tuple[RecordedExchange, ...]

    @staticmethod
    def of(
        question: ProbeQuestion, verdict: ProbeVerdict, evidence: tuple[RecordedExchange, ...] = ()
    ) -> Found:
        answer, how = verdict.grade, verdict.how
        return alike(
            Found, question, question=question.words, answer=answer, how=how, evidence=evidence
        )

    @property
    def good(self) -> bool:
        return self.answer in GOOD


@dataclass(eq=False)
class Interview:
    """One model's interview. ``subject`` grows with what is found; ``spent`` is in tokens.

    ``dialect``: a parameter without effect under our name is asked for under the server's own.
    """

    subject: Subject
    _sender: RequestSender
    _patience: Patience = Patience()
    _on_question: Callable[[ProbeQuestion], None] = lambda question: None
    dialect: Dialect | None = field(default=None, kw_only=True)
    spent: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        # By whether the names are ours, and the request.
        self._replies_by_is_direct_and_request: dict[tuple[bool, ProbeRequest], ProbeReply] = {}
        self._unanswered_in_a_row = 0
        self._early_end_reason = ""
        self._may_ask_chat_questions = True
        self._serves_any_operation = False
        self._any_stayed_busy = False
        self._deadline = time.monotonic() + self._patience.total_seconds

    @property
    def complete(self) -> bool:
        """Return whether an operation was served, and no question lacked time or capacity."""
        return (
            self._serves_any_operation and not self._early_end_reason and not self._any_stayed_busy
        )

    async def run(self, questions: Sequence[ProbeQuestion] = QUESTIONS) -> CompletedInterview:
        """Ask all questions; return what was found and what it took."""
        findings = tuple([one async for one in self.findings(questions)])
        return alike(
            CompletedInterview,
            entry(self.subject, findings, datetime.now(UTC).date()),
            complete=self.complete,
            requests=self.requests,
            tokens=self.spent,
            findings=findings,
        )

    async def findings(self, questions: Sequence[ProbeQuestion]) -> AsyncIterator[Found]:
        for question in questions:
            self._on_question(question)
            reason = self._early_end_reason
            if not reason and not question.alone and not self._may_ask_chat_questions:
                reason = "no completion came"
            elif not reason and question.loud and self.subject.loud is None:
                reason = "the model does not think"
            if reason:
                yield Found.of(question, unclear(f"not asked: {reason}"))
                continue
            found = await self._ask_then_retry_with_dialect(question)
            if question.id == "completion":
                self._may_ask_chat_questions = found.good
            if question.id in _OPERATIONS:
                self._serves_any_operation = self._serves_any_operation or found.good
            yield found

    async def _ask_then_retry_with_dialect(self, question: ProbeQuestion) -> Found:
        verdict, seen = await self._ask_for_verdict_and_evidence(question, self._sender)
        self.subject = verdict.learned or self.subject
        if self.dialect is None or not question.decides or verdict.good or self._early_end_reason:
            return Found.of(question, verdict, seen)
        other, more = await self._ask_for_verdict_and_evidence(
            question, DialectPreview(self._sender, self.dialect)
        )
        if other.good:
            verdict = partly(f"in the server's own terms{': ' * bool(other.how)}{other.how}")
        return Found.of(question, verdict, (*seen, *more))

    async def _ask_for_verdict_and_evidence(
        self, question: ProbeQuestion, sender: RequestSender
    ) -> tuple[ProbeVerdict, tuple[RecordedExchange, ...]]:
        script = question.script(self.subject)
        seen: list[RecordedExchange] = []
        reply: ProbeReply | None = None
        try:
            while isinstance(found := step(script, reply), ProbeRequest):
                if not self._seconds_left:
                    total = self._patience.total_seconds
                    self._early_end_reason = f"the {total:g} s for all questions were over"
                    return unclear(self._early_end_reason), tuple(seen)
                reply = await self._reuse_reply_or_send_with_retries(found, sender)
                seen.append(exchange(found, reply))
                failed = reply.ended in ("late", "broken")
                self._unanswered_in_a_row = self._unanswered_in_a_row + 1 if failed else 0
                if self._unanswered_in_a_row >= _MAX_SILENT:
                    self._early_end_reason = f"the server went silent ({reply.trouble})"
        finally:
            script.close()
        return found, tuple(seen)

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    async def _reuse_reply_or_send_with_retries(
        self, request: ProbeRequest, sender: RequestSender
    ) -> ProbeReply:
        as_kept = (sender is self._sender, request)
        if request.reuse and as_kept in self._replies_by_is_direct_and_request:
            return self._replies_by_is_direct_and_request[as_kept]
        reply = await self._send_and_add_cost(request, sender)
        for turn in range(self._patience.busy_tries):
            if reply.status not in BUSY:
                break
            asked = reply.headers.get("retry-after", "")
            pause = float(asked) if asked.isdecimal() else 2.0 ** (turn + 1)
            pause = min(pause, self._patience.busy_seconds, self._seconds_left)
            await asyncio.sleep(pause)
            reply = await self._send_and_add_cost(request, sender)
        self._any_stayed_busy = self._any_stayed_busy or reply.status in BUSY
        if request.reuse:
            self._replies_by_is_direct_and_request[as_kept] = reply
        return reply

    async def _send_and_add_cost(self, request: ProbeRequest, sender: RequestSender) -> ProbeReply:
        self.requests += 1
        reply = await sender.put(request, max(self._seconds_left, 0.1))
        self.spent += _read_total_tokens_or_zero(reply)
        return reply


def _read_total_tokens_or_zero(reply: ProbeReply) -> int:
    usage = reply.at("usage")
    if usage is None and b'"usage"' in reply.body:
        for line in reversed(reply.body.splitlines()):
            usage = ProbeReply(body=line.removeprefix(b"data:")).at("usage")
            if usage is not None:
                break
    total = dig(usage, "total_tokens")
    return total if isinstance(total, int) else 0


class ProbedModel(Struct, frozen=True, kw_only=True):
    """Probe result of one model at one provider: its abilities and honoured parameters."""

    model: str
    context_length: int | None
    supported_parameters: tuple[str, ...]
    thinking: Thinking | None
    continues: bool | None
    probed: date
    evidence: str
    overclaimed: tuple[str, ...] = ()  # listed as supported by the provider, without effect
    operations: tuple[str, ...] = ()  # empty if it is not clear which it serves

    def values(self) -> dict[str, object]:
        known: dict[str, object] = {
            "id": self.model,
            "operations": list(self.operations) or None,
            "context_length": self.context_length,
            "supported_parameters": list(self.supported_parameters),
            "thinking": self.thinking,
            "continues": self.continues,
            "probed": self.probed.isoformat(),
        }
        return {name: value for name, value in known.items() if value is not None}


class CompletedInterview(ProbedModel, frozen=True, kw_only=True):
    """Result of an interview; ``tokens`` is the sum of those that the provider reported."""

    complete: bool
    requests: int
    tokens: int
    findings: tuple[Found, ...]

    def report(self, base_url: str) -> dict[str, object]:
        """Return the result as data: cost, findings in the order of asking, and catalog entry."""
        return {
            "base_url": base_url,
            "model": self.model,
            "requests": self.requests,
            "tokens": self.tokens,
            "findings": self.findings,
            "entry": self.values(),
            "evidence": self.evidence,
            "overclaimed": self.overclaimed,
        }


def entry(subject: Subject, findings: Sequence[Found], probed: date) -> ProbedModel:
    grades = {one.id: one.answer for one in findings}
    served = {name: grades.get(question, "unclear") for question, name in _OPERATIONS.items()}
    known = "unclear" not in served.values()
    claimed = dig(subject.entry, "supported_parameters")
    names = map(str, claimed if isinstance(claimed, list) else ())
    seen = _group_grades_by_parameter(findings)
    return ProbedModel(
        model=subject.model,
        context_length=subject.context_length,
        supported_parameters=supported(findings),
        thinking=subject.thinking,
        continues=subject.continues,
        probed=probed,
        evidence=_summarize_findings(findings),
        overclaimed=tuple(sorted(name for name in names if "no" in seen.get(name, ()))),
        operations=tuple(name for name, grade in served.items() if known and grade in GOOD),
    )


def supported(findings: Iterable[Found]) -> tuple[str, ...]:
    """Return the parameters for which every question that decides them had a good verdict."""
    good = _group_grades_by_parameter(findings)
    return tuple(sorted(name for name, grades in good.items() if grades <= GOOD))


def _group_grades_by_parameter(findings: Iterable[Found]) -> Mapping[str, set[Grade]]:
    grades: dict[str, set[Grade]] = {}
    for found in findings:
        for name in found.decides:
            grades.setdefault(name, set()).add(found.answer)
    return grades


def _summarize_findings(findings: Sequence[Found]) -> str:
    counts = {grade: sum(one.answer == grade for one in findings) for grade in get_args(Grade)}
    words = ", ".join(f"{count} {grade}" for grade, count in counts.items() if count)
    grades = sorted(_group_grades_by_parameter(findings).items())
    refused = [name for name, found in grades if "no" in found]
    open_ = [name for name, found in grades if "unclear" in found and name not in refused]
    for title, names in (("not honoured", refused), ("unclear", open_)):
        words += f"; {title}: {', '.join(names)}" if names else ""
    return words


LARGE = 80_000


@dataclass(frozen=True, slots=True)
class ProbeBudget:
    """Upper bounds of what interviews cost, in requests and tokens (prompt and output together).

    ``if_taken`` comes on top where a prompt that is too long is not refused,
    ``if_thinking`` where the model cannot be kept from thinking.
    """

    requests: int
    tokens: int
    if_taken: int
    if_thinking: int

    @property
    def large(self) -> bool:
        return self.tokens + self.if_taken > LARGE

    def __str__(self) -> str:
        return (
            f"at most {self.requests} requests, one at a time, and {self.tokens:,} tokens; "
            f"{self.if_taken:,} more if a prompt that is too long is not refused, "
            f"{self.if_thinking:,} more if the model cannot be kept from thinking"
        )


def cost(
    questions: Sequence[ProbeQuestion],
    subjects: Sequence[Subject],
    *,
    dialect_preview: bool = False,
) -> ProbeBudget:
    """Return the most requests and tokens that asking all subjects all questions may take."""
    if dialect_preview:
        questions = [*questions, *(question for question in questions if question.decides)]
    completions = sum(question.asks for question in questions if question.tokens)
    too_long = any(question.id == TOO_LONG for question in questions)
    lengths = [one.context_length or LONGEST_ASKED for one in subjects] if too_long else []
    return ProbeBudget(
        requests=sum(question.asks for question in questions) * len(subjects),
        tokens=sum(question.asks * question.tokens for question in questions) * len(subjects),
        if_taken=sum(longest_prompt(length) for length in lengths if length <= LONGEST_ASKED),
        if_thinking=completions * ROOM * len(subjects),
    )


# The interview of one model whole, and its report for the command and the pages.

_RULES = ParsingRules(reasoning_object=True)


@dataclass(frozen=True, slots=True)
class DialectPreview:
    """Sends chat completions as the gateway sends them to this kind of server, others unchanged."""

    asks: RequestSender
    dialect: Dialect

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """Send a request in the dialect's terms if it can be; return the reply or the refusal."""
        if ask.path != "/chat/completions" or not ask.body:
            return await self.asks.put(ask, seconds)
        try:
            request = parse(ask.body, _RULES)
            sent = outgoing(request, self.dialect, request.model)
        except ServiceError as error:
            body = msgspec.json.encode(error.body())
            return ProbeReply(error.status, {"content-type": "application/json"}, body)
        reply = await self.asks.put(replace(ask, body=sent.body), seconds)
        return reply if request.stream else reply.plain()


_OWNERS = {
    "causerie": "causerie",
    "library": "ollama",
    "llamacpp": "llama-server",
    "sglang": "sglang",
    "vllm": "vllm",
}


def guess_dialect(listed: ProbeReply, model: str) -> Dialect | None:
    """Return the dialect of the server named by ``owned_by`` in its list of models, if known."""
    owner = dig(entry_of(listed, model), "owned_by") or dig(entries(listed), 0, "owned_by")
    return DIALECTS.get(_OWNERS.get(str(owner), ""))
