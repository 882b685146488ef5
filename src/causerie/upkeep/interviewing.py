"""One model's whole interview, as the command and the pages have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from causerie.probe.entry import Entry, entry
from causerie.probe.interview import Asks, Finding, Interview, Patience
from causerie.probe.question import Question
from causerie.probe.questions import QUESTIONS
from causerie.probe.questions.listing import entries, entry_of
from causerie.probe.reply import Reply, dig
from causerie.probe.report import report
from causerie.probe.subject import Subject
from causerie.upkeep.bent import BentAsks
from causerie.upstreams.dialect import Dialect
from causerie.upstreams.dialects import DIALECTS

_OWNERS = {
    "causerie": "causerie",
    "library": "ollama",
    "llamacpp": "llama-server",
    "sglang": "sglang",
    "vllm": "vllm",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """An interview, done. ``tokens`` are those that the endpoint has counted itself."""

    entry: Entry
    findings: tuple[Finding, ...]
    requests: int
    tokens: int
    complete: bool

    def report(self, base_url: str) -> dict[str, object]:
        """All of it as data."""
        return report(
            base_url, self.entry, self.findings, requests=self.requests, tokens=self.tokens
        )


def interview(
    subject: Subject,
    asks: Asks,
    dialect: Dialect | None,
    patience: Patience,
    asking: Callable[[Question], None],
) -> Interview:
    """The interview of a model; with a dialect what fails is asked for in its terms too."""
    bent = BentAsks(asks, dialect) if dialect is not None else None
    return Interview(subject, asks, patience, asking, bent=bent)


async def carried_out(interview: Interview) -> Asked:
    """Every question asked, and what follows."""
    findings = [one async for one in interview.findings(QUESTIONS)]
    return Asked(
        entry(interview.subject, findings, datetime.now(UTC).date()),
        tuple(findings),
        interview.requests,
        interview.spent,
        interview.complete,
    )


def guessed(listed: Reply, model: str) -> Dialect | None:
    """The kind of server, by whom it says its models are owned."""
    owner = dig(entry_of(listed, model), "owned_by") or dig(entries(listed), 0, "owned_by")
    return DIALECTS.get(_OWNERS.get(str(owner), ""))
