"""Asks the questions one after another, politely and within limits.

One request at a time. A server that says it is busy is given the time it asks
for. A question ends in a verdict whatever the server does; where the server
does nothing any more, the rest is not asked and says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from causerie.probe.ask import ProbeRequest
from causerie.probe.evidence import EvidenceExchange, exchange
from causerie.probe.question import Learned, ProbeQuestion, step
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.subject import Subject
from causerie.probe.verdict import ProbeVerdict, partly, unclear

_BUSY = (429, 503)
_MAX_SILENT = 3


class RequestSender(Protocol):
    """Interface to a sender of requests."""

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """Return the reply within ``seconds``; no behaviour of the server raises an exception."""


@dataclass(frozen=True, slots=True)
class Patience:
    """``total_seconds`` for all questions, ``busy_seconds`` and ``busy_tries`` for a request
    that the server has no room for."""

    total_seconds: float = 1800.0
    busy_seconds: float = 60.0
    busy_tries: int = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its verdict and what was seen."""

    question: ProbeQuestion
    verdict: ProbeVerdict
    exchanges: tuple[EvidenceExchange, ...] = ()


class Interview:
    """One model's interview. ``subject`` grows on the way; ``spent`` is in tokens, as told.

    With ``dialect_preview``, which sends requests as this kind of server wants them, a
    parameter that does nothing by our name is asked for once more that way.
    """

    def __init__(
        self,
        subject: Subject,
        asks: RequestSender,
        patience: Patience = Patience(),
        asking: Callable[[ProbeQuestion], None] = lambda question: None,
        *,
        dialect_preview: RequestSender | None = None,
    ) -> None:
        self.subject = subject
        self._dialect_preview = dialect_preview
        self.spent = 0
        self.requests = 0
        self._asks = asks
        self._patience = patience
        self._asking = asking
        self._kept: dict[ProbeRequest, ProbeReply] = {}
        self._kept_dialect_preview: dict[ProbeRequest, ProbeReply] = {}
        self._silent = 0
        self._ended = ""
        self._answers = True
        self._crowded = False
        self._deadline = time.monotonic() + patience.total_seconds

    @property
    def complete(self) -> bool:
        """Return whether every question could be asked.

        This requires that a completion arrived, and that the server stayed available
        and had capacity.
        """
        return self._answers and not self._ended and not self._crowded

    async def findings(self, questions: Sequence[ProbeQuestion]) -> AsyncIterator[Finding]:
        for question in questions:
            self._asking(question)
            reason = self._why_not(question)
            if reason:
                yield Finding(question, unclear(f"not asked: {reason}"))
                continue
            finding = await self._finding(question)
            if question.id == "completion":
                self._answers = finding.verdict.good
            yield finding

    def _why_not(self, question: ProbeQuestion) -> str:
        if self._ended:
            return self._ended
        if not question.alone and not self._answers:
            return "no completion came"
        if question.loud and self.subject.loud is None:
            return "the model does not think"
        return ""

    async def _finding(self, question: ProbeQuestion) -> Finding:
        found, seen = await self._driven(question, self._asks)
        if isinstance(found, Learned):
            self.subject = found.subject
            found = found.verdict
        if self._dialect_preview is None or not question.decides or found.good or self._ended:
            return Finding(question, found, seen)
        other, more = await self._driven(question, self._dialect_preview)
        other = other.verdict if isinstance(other, Learned) else other
        if other.good:
            found = partly(f"in the server's own terms{': ' * bool(other.how)}{other.how}")
        return Finding(question, found, (*seen, *more))

    async def _driven(
        self, question: ProbeQuestion, asks: RequestSender
    ) -> tuple[ProbeVerdict | Learned, tuple[EvidenceExchange, ...]]:
        """Return the result of the question, and its exchanges with the server."""
        script = question.script(self.subject)
        seen: list[EvidenceExchange] = []
        reply: ProbeReply | None = None
        try:
            while isinstance(found := step(script, reply), ProbeRequest):
                if not self._left:
                    return self._out_of_time(), tuple(seen)
                reply = await self._reply(found, asks)
                seen.append(exchange(found, reply))
                self._note_silence(reply)
        finally:
            script.close()
        return found, tuple(seen)

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _out_of_time(self) -> ProbeVerdict:
        self._ended = f"the {self._patience.total_seconds:g} s for all questions were over"
        return unclear(self._ended)

    def _note_silence(self, reply: ProbeReply) -> None:
        silent = reply.ended in ("late", "broken")
        self._silent = self._silent + 1 if silent else 0
        if self._silent >= _MAX_SILENT:
            self._ended = f"the server went silent ({reply.trouble})"

    async def _reply(self, ask: ProbeRequest, asks: RequestSender) -> ProbeReply:
        kept = self._kept if asks is self._asks else self._kept_dialect_preview
        if ask.reuse and ask in kept:
            return kept[ask]
        reply = await self._sent(ask, asks)
        for turn in range(self._patience.busy_tries):
            if reply.status not in _BUSY:
                break
            await asyncio.sleep(min(self._pause(reply, turn), self._left))
            reply = await self._sent(ask, asks)
        self._crowded = self._crowded or reply.status in _BUSY
        if ask.reuse:
            kept[ask] = reply
        return reply

    async def _sent(self, ask: ProbeRequest, asks: RequestSender) -> ProbeReply:
        self.requests += 1
        reply = await asks.put(ask, max(self._left, 0.1))
        self.spent += _tokens(reply)
        return reply

    def _pause(self, reply: ProbeReply, turn: int) -> float:
        """Return the wait that a busy server asks for; by default it grows with each attempt."""
        asked = reply.headers.get("retry-after", "")
        seconds = float(asked) if asked.isdecimal() else 2.0 ** (turn + 1)
        return min(seconds, self._patience.busy_seconds)


def _tokens(reply: ProbeReply) -> int:
    """Return the tokens that the reply reports; a stream's usage is read from its end."""
    usage = dig(reply.document(), "usage")
    if usage is None and b'"usage"' in reply.body:
        for line in reversed(reply.body.splitlines()):
            usage = dig(ProbeReply(body=line.removeprefix(b"data:")).document(), "usage")
            if usage is not None:
                break
    total = dig(usage, "total_tokens")
    return total if isinstance(total, int) else 0
