"""One model's whole interview, and its report for the command and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from causerie.errors import ServiceError
from causerie.probe.interview import Finding, Interview, ProbedModel, RequestSender, entry
from causerie.probe.question import (
    ProbeQuestion,
    ProbeReply,
    ProbeRequest,
    RecordedExchange,
    dig,
)
from causerie.probe.questions import QUESTIONS
from causerie.probe.questions.listing import entries, entry_of
from causerie.protocol.alike import alike
from causerie.protocol.parameters import ParsingRules
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import parse

_RULES = ParsingRules(reasoning_object=True)


@dataclass(frozen=True, slots=True)
class DialectPreview:
    """Sends chat completions as the gateway sends them to this kind of server, the rest unchanged.

    A parameter without effect under our name may have one under the server's own.
    """

    asks: RequestSender
    dialect: Dialect

    async def put(self, ask: ProbeRequest, seconds: float | None = None) -> ProbeReply:
        """Return the reply; a request that the dialect refuses is never sent."""
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


Answer = Literal["yes", "partly", "no", "unclear"]


class Found(Struct, frozen=True, kw_only=True):
    """One question: by which rule, what came out and how, what was seen.

    ``decides`` are the parameters that it shows to be supported.
    """

    id: str
    rule: str
    question: str
    decides: tuple[str, ...]
    answer: Answer
    how: str
    evidence: tuple[RecordedExchange, ...]

    @staticmethod
    def of(finding: Finding) -> Found:
        question, verdict = finding.question, finding.verdict
        return alike(
            Found,
            question,
            question=question.words,
            answer=verdict.grade.value,
            how=verdict.how,
            evidence=finding.exchanges,
        )


@dataclass(frozen=True, slots=True)
class CompletedInterview:
    """The result of an interview. ``tokens`` are those that the provider has counted itself."""

    entry: ProbedModel
    findings: tuple[Finding, ...]
    requests: int
    tokens: int
    complete: bool

    def report(self, base_url: str) -> dict[str, object]:
        """Return all of it as data: findings in the order of asking, and what follows from them."""
        return {
            "base_url": base_url,
            "model": self.entry.id,
            "requests": self.requests,
            "tokens": self.tokens,
            "findings": [Found.of(one) for one in self.findings],
            "entry": self.entry.values(),
            "evidence": self.entry.evidence,
            "overclaimed": self.entry.overclaimed,
        }


async def run_interview(
    interview: Interview, questions: Sequence[ProbeQuestion] = QUESTIONS
) -> CompletedInterview:
    findings = [one async for one in interview.findings(questions)]
    return CompletedInterview(
        entry(interview.subject, findings, datetime.now(UTC).date()),
        tuple(findings),
        interview.requests,
        interview.spent,
        interview.complete,
    )


def guess_dialect(listed: ProbeReply, model: str) -> Dialect | None:
    """Return the dialect of the server that names itself the owner of its models."""
    owner = dig(entry_of(listed, model), "owned_by") or dig(entries(listed), 0, "owned_by")
    return DIALECTS.get(_OWNERS.get(str(owner), ""))
