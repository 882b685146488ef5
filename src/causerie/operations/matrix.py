"""Parameters that a model of a provider supports, and the evidence.

The service goes by its configuration, so this is the state of the configuration. The result of a
probe explains it, if that result is the one in force.
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
    """Configured support of a model's parameters."""

    supported: frozenset[str] | None = None
    effective: frozenset[str] | None = None
    """Parameters that requests are checked against; ``None``: everything is let through."""


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
            else:
                cells.append(Cell(name, "no", "not among the measured parameters"))
    return cells


def own_row() -> Sequence[Cell]:
    """Of a model that this service runs itself."""
    words = "enforced here; every question of the probe is asked in our tests"
    return [Cell(name, "yes", words) for _, names in groups() for name in names]
