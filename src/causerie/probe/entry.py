"""Configuration of a probed model: only observed facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from causerie.probe.interview import Finding
from causerie.probe.reply import dig
from causerie.probe.subject import Subject, Thinking
from causerie.probe.verdict import Grade


@dataclass(frozen=True, slots=True)
class ProbedModel:
    """One model at one provider. ``supported_parameters`` are honoured, not only accepted;
    ``overclaimed`` are said to be supported in the list of models, and were seen not to be."""

    id: str
    context_length: int | None
    supported_parameters: tuple[str, ...]
    thinking: Thinking | None
    continues: bool | None
    probed: date
    evidence: str
    overclaimed: tuple[str, ...] = ()

    def values(self) -> dict[str, object]:
        """Return the configuration's values; unknown ones are left out."""
        known: dict[str, object] = {
            "id": self.id,
            "context_length": self.context_length,
            "supported_parameters": list(self.supported_parameters),
            "thinking": self.thinking,
            "continues": self.continues,
            "probed": self.probed.isoformat(),
        }
        return {name: value for name, value in known.items() if value is not None}


def entry(subject: Subject, findings: Sequence[Finding], probed: date) -> ProbedModel:
    return ProbedModel(
        id=subject.model,
        context_length=subject.context_length,
        supported_parameters=supported(findings),
        thinking=subject.thinking,
        continues=subject.continues,
        probed=probed,
        evidence=_evidence(findings),
        overclaimed=_overclaimed(subject, findings),
    )


def supported(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the parameters for which every question that decides them had a good verdict."""
    good = _by_parameter(findings)
    return tuple(sorted(name for name, grades in good.items() if grades <= _GOOD))


def _overclaimed(subject: Subject, findings: Sequence[Finding]) -> tuple[str, ...]:
    claimed = dig(subject.entry, "supported_parameters")
    names = claimed if isinstance(claimed, list) else []
    seen = _by_parameter(findings)
    return tuple(sorted(str(name) for name in names if Grade.NO in seen.get(str(name), ())))


_GOOD = {Grade.YES, Grade.PARTLY}


def _by_parameter(findings: Iterable[Finding]) -> Mapping[str, set[Grade]]:
    grades: dict[str, set[Grade]] = {}
    for finding in findings:
        for name in finding.question.decides:
            grades.setdefault(name, set()).add(finding.verdict.grade)
    return grades


def _evidence(findings: Sequence[Finding]) -> str:
    counts = {grade: sum(one.verdict.grade is grade for one in findings) for grade in Grade}
    words = ", ".join(f"{count} {grade}" for grade, count in counts.items() if count)
    missing = _by_parameter(findings)
    refused = sorted(name for name, grades in missing.items() if Grade.NO in grades)
    open_ = sorted(
        name
        for name, grades in missing.items()
        if Grade.UNCLEAR in grades and Grade.NO not in grades
    )
    if refused:
        words += "; not honoured: " + ", ".join(refused)
    if open_:
        words += "; unclear: " + ", ".join(open_)
    return words
