"""One model's whole interview, as the command and the pages have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from causerie.operations.dialect_preview import DialectPreview
from causerie.probe.entry import ProbedModel, entry
from causerie.probe.interview import Finding, Interview, Patience, RequestSender
from causerie.probe.question import ProbeQuestion
from causerie.probe.questions import QUESTIONS
from causerie.probe.questions.listing import entries, entry_of
from causerie.probe.reply import ProbeReply, dig
from causerie.probe.report import report
from causerie.probe.subject import Subject
from causerie.providers.dialect import Dialect
from causerie.providers.dialects import DIALECTS

_OWNERS = {
    "causerie": "causerie",
    "library": "ollama",
    "llamacpp": "llama-server",
    "sglang": "sglang",
    "vllm": "vllm",
}


@dataclass(frozen=True, slots=True)
class CompletedInterview:
    """An interview, done. ``tokens`` are those that the provider has counted itself."""

    entry: ProbedModel
    findings: tuple[Finding, ...]
    requests: int
    tokens: int
    complete: bool

    def report(self, base_url: str) -> dict[str, object]:
        return report(
            base_url, self.entry, self.findings, requests=self.requests, tokens=self.tokens
        )


def interview(
    subject: Subject,
    asks: RequestSender,
    dialect: Dialect | None,
    patience: Patience,
    asking: Callable[[ProbeQuestion], None],
) -> Interview:
    """The interview of a model; with a dialect what fails is asked for in its terms too."""
    dialect_preview = DialectPreview(asks, dialect) if dialect is not None else None
    return Interview(subject, asks, patience, asking, dialect_preview=dialect_preview)


async def carried_out(
    interview: Interview, questions: Sequence[ProbeQuestion] = QUESTIONS
) -> CompletedInterview:
    """Every question asked, and what follows."""
    findings = [one async for one in interview.findings(questions)]
    return CompletedInterview(
        entry(interview.subject, findings, datetime.now(UTC).date()),
        tuple(findings),
        interview.requests,
        interview.spent,
        interview.complete,
    )


def guessed(listed: ProbeReply, model: str) -> Dialect | None:
    """The kind of server, by whom it says its models are owned."""
    owner = dig(entry_of(listed, model), "owned_by") or dig(entries(listed), 0, "owned_by")
    return DIALECTS.get(_OWNERS.get(str(owner), ""))
