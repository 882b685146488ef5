"""A matrix of parameters, folded: each parameter is in it once, differences first."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from causerie.hosted.console.service_view import folded
from causerie.hosted.operations.probes import Cell, Mark

MARKS: tuple[Mark, ...] = ("yes", "partly", "no", "unclear", "unknown")
GROUPS = (("Tools", ("tools", "tool_choice")), ("Length", ("stop", "max_tokens", "n")))
NAMES = [name for _, names in GROUPS for name in names]


@dataclass(frozen=True)
class Column:
    cells: dict[str, Cell]


def column(marks: dict[str, Mark]) -> Column:
    return Column({name: Cell(name, mark) for name, mark in marks.items()})


columns = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(MARKS) for name in NAMES}).map(column),
    min_size=1,
    max_size=4,
)


@given(columns)
def test_each_parameter_is_in_it_once_and_where_it_belongs(found: list[Column]) -> None:
    made = folded(found, GROUPS)
    seen = [each for each in found if any(cell.mark != "unknown" for cell in each.cells.values())]
    assert list(made.measured) == seen
    assert len(made.unmeasured) == len(found) - len(seen)
    listed = [name for _, names in made.alike for name in names]
    assert sorted([*made.differing, *listed]) == (sorted(NAMES) if seen else [])
    for name in made.differing:
        assert len({each.cells[name].mark for each in seen}) > 1
    for mark, names in made.alike:
        assert {each.cells[name].mark for each in seen for name in names} == {mark}


def test_answers_that_need_attention_come_first() -> None:
    one = column(
        {"tools": "yes", "tool_choice": "no", "stop": "partly", "max_tokens": "yes", "n": "no"}
    )
    made = folded([one], GROUPS)
    assert made.alike == [
        ("partly", ["stop"]),
        ("no", ["tool_choice", "n"]),
        ("yes", ["tools", "max_tokens"]),
    ]
    assert made.differing == []
