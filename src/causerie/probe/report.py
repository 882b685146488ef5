"""The whole interview of a model as data: for ``--json``, for scripts, for keeping."""

from __future__ import annotations

from collections.abc import Sequence

from causerie.probe.entry import ProbedModel
from causerie.probe.interview import Finding


def report(
    base_url: str, entry: ProbedModel, findings: Sequence[Finding], *, requests: int, tokens: int
) -> dict[str, object]:
    """Return the findings in the order of asking, and the entry that follows from them.

    ``tokens`` are those that the provider has counted itself.
    """
    return {
        "base_url": base_url,
        "model": entry.id,
        "requests": requests,
        "tokens": tokens,
        "findings": [_finding(one) for one in findings],
        "entry": entry.values(),
        "evidence": entry.evidence,
        "overclaimed": list(entry.overclaimed),
    }


def _finding(finding: Finding) -> dict[str, object]:
    question, verdict = finding.question, finding.verdict
    return {
        "id": question.id,
        "rule": question.rule,
        "question": question.words,
        "decides": list(question.decides),
        "answer": verdict.grade.value,
        "how": verdict.how,
        "evidence": [
            {"asked": one.asked, "came": one.came, "seconds": one.seconds}
            for one in finding.exchanges
        ],
    }
