"""Parameters that a model of a provider supports, and the evidence.

The service goes by its configuration, so this is the state of the configuration. The result of a
probe explains it, if that result is the one in force; otherwise the remark that ``causerie probe
--write`` left there does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from causerie.operations.result import Result
from causerie.protocol import parameters
from causerie.protocol.declaration import declared
from causerie.protocol.parsing.rules import HONOURED

Mark = Literal["yes", "partly", "no", "unclear", "unknown"]
_PLAIN = frozenset({"model", "messages"})
_OTHER = "Other"
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
    (title, tuple(each.name for each in declared(group)))
    for title, group in parameters.GROUPS
    if title != _OTHER
)
"""Parameters by what they are for, the most telling first; all others come after them."""


class ConfiguredSupport(Struct, frozen=True):
    """Configured support of a model's parameters. ``effective`` is what requests are held to;
    ``None``: everything is let through. ``remark`` is what stands behind the day of the probe."""

    supported: frozenset[str] | None = None
    effective: frozenset[str] | None = None
    """Parameters that requests are checked against; ``None``: everything is let through."""
    remark: str = ""
    """The text after the day of the probe."""


class Cell(Struct, frozen=True):
    """One parameter of one model."""

    parameter: str
    mark: Mark
    words: str = ""


def groups() -> Sequence[tuple[str, Sequence[str]]]:
    """All parameters that can be supported, by what they are for."""
    named = _PLAIN.union(*(names for _, names in GROUPS))
    return [*GROUPS, (_OTHER, sorted(HONOURED - named))]


def row(known: ConfiguredSupport, result: Result | None) -> Sequence[Cell]:
    """Every parameter of a model; ``result`` is that of the probe in force, if it is kept."""
    found = result.answers() if result is not None else {}
    refused, unclear = _noted(known.remark)
    cells = []
    for _, names in groups():
        for name in names:
            if known.effective is None:
                cells.append(Cell(name, "unknown", "nobody has measured it; it is let through"))
                continue
            seen = found.get(name)
            supported = name in known.effective
            if seen is not None and (seen.answer in ("yes", "partly")) == supported:
                words = seen.how or seen.question
                cells.append(Cell(name, seen.answer, words))
            elif supported:
                own = known.supported is not None and name not in known.supported
                words = "served here, or under another of its names" if own else "measured"
                cells.append(Cell(name, "yes", words))
            elif name in unclear:
                cells.append(Cell(name, "unclear", "nothing was seen that would decide it"))
            else:
                words = "seen not to be honoured" if name in refused else "not among what was found"
                cells.append(Cell(name, "no", words))
    return cells


def own_row() -> Sequence[Cell]:
    """Of a model that this service runs itself."""
    words = "enforced here; every question of the probe is asked in our tests"
    return [Cell(name, "yes", words) for _, names in groups() for name in names]


def _noted(remark: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the parameters that a remark names as not honoured, and as unclear."""
    found: dict[str, frozenset[str]] = {}
    for part in remark.split("; "):
        title, colon, names = part.partition(": ")
        if colon:
            found[title] = frozenset(names.split(", "))
    return found.get("not honoured", frozenset()), found.get("unclear", frozenset())
