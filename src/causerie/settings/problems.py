"""What is wrong with a configuration: where it stands, and what would be right.

Knows no particular setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from causerie.settings.lines import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. ``where`` is a file and line, a variable or a flag;
    ``key`` is dotted; ``advice`` says what is wrong and what would be right."""

    where: str
    key: str
    advice: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.advice) if part)


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule between settings that does not hold, at a key; ``other`` is the key it meets."""

    path: Path
    advice: str
    other: Path | None = None


def dotted(path: Path) -> str:
    """The path as people write it: ``models[0].id``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class SettingsError(Exception):
    """The configuration cannot be used; ``problems`` has at least one entry."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
