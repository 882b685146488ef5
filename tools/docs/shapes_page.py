"""Generate ``docs/reference/shapes.md``: what becomes of each thing between APIs and targets.

A cell is the result of a real translation, and a test tries it with other values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from fidelity import (
    CARRIED,
    CLIENTS,
    TARGETS,
    THINGS,
    Outcome,
    Thing,
    is_native,
    outcome,
    returns,
)

_INTRODUCTION = """\
# What survives between APIs

A client speaks chat completions, [Responses](responses.md) or [Messages](messages.md); what answers
is a model of this service, or a provider of some [dialect](dialects.md). Here is what becomes of
each thing that a request can carry. A test tries each cell with other values.

| cell | means |
|---|---|
| as it is | the provider speaks the client's API: nothing is translated |
| a name | it arrives, in this field of what is sent, or in this part of what our engine is asked |
| as a name | it arrives in other words: this field says the same |
| dropped | it does not arrive, and `x-request-changes` names it at its place in the client's body |
| no effect | a hint, which changes nothing in a reply of a model that we run |
| 400 | the request is refused, by the name of the field |

Requests are read as by a router. The model of this service takes no images; one with vision has
them in its prompt. A demanded call, a single one and a response format are enforced by a grammar.
"""
_BACK = """\
## What a provider gets back

What a provider puts into a reply and needs in the next request goes through the client, who sends
the reply back as it came. *all*: it comes back through each of the three APIs. In Responses that
needs `include: ["reasoning.encrypted_content"]`, and in chat completions a door with the object
`reasoning`. Where both ends speak the same API, the reply passes unchanged instead.
"""
_TITLES = {"chat completions": "Chat completions", "responses": "Responses", "messages": "Messages"}


def cell(found: Outcome, client: str, target: str) -> str:
    """Return what the page says of an outcome."""
    if found.refused:
        return "400"
    if (found.kept or found.moved) and is_native(client, target):
        return "as it is"
    if found.kept:
        return f"`{found.kept[0]}`"
    if any(change.endswith(" dropped") for change in found.told):
        return "dropped"
    if found.moved:
        return f"as `{found.moved[0]}`"
    return "no effect" if found.silent else "dropped"


def shapes_page() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *map(_section, CLIENTS), _BACK, _table(_way_back())])


def _section(client: str) -> str:
    rows = [("", *(each if " " in each else f"`{each}`" for each in TARGETS))]
    rows += (_row(thing, client) for thing in THINGS if client in thing.puts)
    return f"## {_TITLES[client]}\n\n{_table(rows)}"


def _row(thing: Thing, client: str) -> tuple[str, ...]:
    found = (outcome(thing, client, target, thing.example()) for target in TARGETS)
    cells = (cell(each, client, target) for each, target in zip(found, TARGETS, strict=True))
    return (thing.name, *cells)


def _way_back() -> Iterable[tuple[str, ...]]:
    yield "", *(each if " " in each else f"`{each}`" for each in TARGETS)
    for thing in CARRIED:
        yield thing, *(_apis(thing, target) for target in TARGETS)


def _apis(thing: str, target: str) -> str:
    found = [client for client in CLIENTS if returns(thing, client, target, "zqabcdef")]
    return "all" if len(found) == len(CLIENTS) else ", ".join(found) or "–"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    titles, *others = rows
    lines = [titles, ("---",) * len(titles), *others]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(shapes_page())
