"""Generate ``docs/reference/sampling.md`` from the table of model families."""

from __future__ import annotations

import sys

from causerie.engines.sampling import FAMILIES, Family
from causerie.protocol.parameters import MODEL_SAMPLING, SamplingDefaults

_HEAD = """\
# Recommended sampling

What publishers of model families recommend, with the source of each row. It applies where neither
the request nor `models.sampling` nor the files of the model say anything
([sampling](../guides/sampling.md)). An empty cell is neutral.

The first row counts whose regular expression is found in a name of the model: in lower case, with
`-` for everything but letters, digits and dots. This page is written from
`causerie.engines.sampling` by `make docs`; add a row there only with a source.

"""
_NAMES = [each.name for each in MODEL_SAMPLING]


def sampling_page() -> str:
    """Return the whole page."""
    columns = ["name", *(f"`{name}`" for name in _NAMES), "source"]
    lines = [_line(columns), "|---" * len(columns) + "|"]
    for family in FAMILIES:
        lines.extend(_rows(family))
    return _HEAD + "\n".join(lines) + "\n"


def _rows(family: Family) -> list[str]:
    name = f"`{family.pattern}`"
    rows = [_line([name, *_values(family.usual), family.source])]
    if family.without_thinking is not None:
        values = _values(family.without_thinking)
        rows.append(_line([f"{name}, thinking off", *values, family.source]))
    return rows


def _values(sampling: SamplingDefaults) -> list[str]:
    values = (getattr(sampling, name) for name in _NAMES)
    return ["" if value is None else f"{value:g}" for value in values]


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(sampling_page())
