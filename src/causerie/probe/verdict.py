"""Yes, no, partly, unclear, and how so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """``UNCLEAR``: nothing was seen that would decide it."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """``how`` is for people: what was seen, or what is missing."""

    grade: Grade
    how: str = ""

    @property
    def good(self) -> bool:
        """Return whether a caller can rely on it."""
        return self.grade in (Grade.YES, Grade.PARTLY)


def yes(how: str = "") -> ProbeVerdict:
    return ProbeVerdict(Grade.YES, how)


def partly(how: str) -> ProbeVerdict:
    return ProbeVerdict(Grade.PARTLY, how)


def no(how: str) -> ProbeVerdict:
    return ProbeVerdict(Grade.NO, how)


def unclear(how: str) -> ProbeVerdict:
    return ProbeVerdict(Grade.UNCLEAR, how)


def weighed(missing: list[str], *, of: int, how: str = "") -> ProbeVerdict:
    """Return yes if nothing is missing, no if all ``of`` things are, otherwise partly."""
    if not missing:
        return yes(how)
    words = "; ".join(missing)
    return no(words) if len(missing) >= of else partly(words)


class Settled(Exception):
    """Raised inside a question whose verdict is clear already."""

    def __init__(self, verdict: ProbeVerdict) -> None:
        super().__init__(verdict.how)
        self.verdict = verdict
