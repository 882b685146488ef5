"""Parameters of models side by side: those that tell them apart first, the others by answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from causerie.operations.matrix import Cell

_ORDER = ("partly", "no", "unclear", "unknown", "yes")


class CapabilityColumn(Protocol):
    """One model: its cells by parameter."""

    @property
    def cells(self) -> Mapping[str, Cell]: ...


@dataclass(frozen=True, slots=True)
class FoldedMatrix:
    """``differing`` parameters need a row each; ``alike`` are equal for all, by answer."""

    differing: Sequence[str]
    alike: Sequence[tuple[str, Sequence[str]]]


def folded(
    columns: Sequence[CapabilityColumn], groups: Sequence[tuple[str, Sequence[str]]]
) -> FoldedMatrix:
    """Fold a matrix; parameters keep the order of their groups."""
    differing: list[str] = []
    alike: dict[str, list[str]] = {mark: [] for mark in _ORDER}
    for name in (name for _, names in groups for name in names):
        marks = {column.cells[name].mark for column in columns}
        if len(marks) == 1:
            alike[marks.pop()].append(name)
        elif marks:
            differing.append(name)
    return FoldedMatrix(differing, [(mark, names) for mark, names in alike.items() if names])
