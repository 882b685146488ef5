"""Parameters of models side by side: those that tell them apart first, the others by answer.

Models of which nothing was measured are set aside: they would differ from all others everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from causerie.operations.matrix import Cell

_ORDER = ("partly", "no", "unclear", "unknown", "yes")


class CapabilityColumn(Protocol):
    """One model: its cells by parameter."""

    @property
    def cells(self) -> Mapping[str, Cell]: ...


Column = TypeVar("Column", bound=CapabilityColumn)


@dataclass(frozen=True, slots=True)
class FoldedMatrix(Generic[Column]):
    """``differing`` parameters need a row each; ``alike`` are equal for all measured, by answer."""

    measured: Sequence[Column]
    unmeasured: Sequence[Column]
    differing: Sequence[str]
    alike: Sequence[tuple[str, Sequence[str]]]


def folded(
    columns: Sequence[Column], groups: Sequence[tuple[str, Sequence[str]]]
) -> FoldedMatrix[Column]:
    """Fold a matrix; parameters keep the order of their groups."""
    unmeasured = [each for each in columns if {c.mark for c in each.cells.values()} == {"unknown"}]
    measured = [each for each in columns if each not in unmeasured]
    differing: list[str] = []
    alike: dict[str, list[str]] = {mark: [] for mark in _ORDER}
    for name in (name for _, names in groups for name in names):
        marks = {column.cells[name].mark for column in measured}
        if len(marks) == 1:
            alike[marks.pop()].append(name)
        elif marks:
            differing.append(name)
    folded_away = [(mark, names) for mark, names in alike.items() if names]
    return FoldedMatrix(measured, unmeasured, differing, folded_away)
