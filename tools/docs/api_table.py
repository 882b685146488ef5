"""The table of parameters in ``docs/reference/api.md``, written from the declarations.

With the path of the page, it renews the table there; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from causerie.protocol.body_types import MAX_INT32
from causerie.protocol.declaration import Number, Parameter, declared
from causerie.protocol.parameters import GROUPS

_BEGIN = "<!-- The parameters, written from the code by `make docs`. -->\n"
_END = "<!-- The end of the parameters. -->\n"
_OTHER_APIS = {"Responses": "responses", "Messages": "messages"}
"""Titles of the columns of other APIs, and the facts with the names there."""


def renewed(page: str) -> str:
    """Return the page with the table of the parameters as they are declared now."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{parameter_table()}\n{_END}{after}"


def parameter_table() -> str:
    """Return all parameters that are read, by group, with the values that they take."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    titles = "".join(f" in {title} |" for title in _OTHER_APIS)
    yield f"| parameter |{titles} value |"
    yield "|---|" + "---|" * len(_OTHER_APIS) + "---|"
    *named, others = GROUPS
    for title, group in (others, *named):
        if title != others[0]:
            yield f"| **{title}** |" + " |" * len(_OTHER_APIS) + " |"
        for parameter in declared(group):
            sentences = filter(None, (_values(parameter), parameter.description.rstrip(".")))
            names = "".join(f" {_name(parameter, fact)} |" for fact in _OTHER_APIS.values())
            yield f"| `{parameter.name}` |{names} {'. '.join(sentences)} |"


def _name(parameter: Parameter, fact: str) -> str:
    name = getattr(parameter.facts, fact)
    return "–" if name is None else f"`{name}`" if name else "the same"


def _values(parameter: Parameter) -> str:
    if parameter.facts.takes:
        return parameter.facts.takes
    if parameter.number is not None:
        return _range(parameter.number)
    if parameter.bare is bool:
        return "true or false"
    return f"up to {parameter.most_characters} characters"


def _range(number: Number) -> str:
    if number.most == MAX_INT32:
        return f"{number.least:g} or more"
    if number.above:
        return f"above {number.least:g}, to {number.most:g}"
    return f"{number.least:g} to {number.most:g}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renewed(path.read_text()))
