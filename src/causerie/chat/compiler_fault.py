"""Explain a compiler's error in terms of the client's schema, and find its cause.

The compiler names rules and lines of the composed grammar, which the client
never saw. This module finds the schema inside and tries its subschemas one by
one. Knows llguidance's messages; starts no processes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping

from causerie.chat import lark
from causerie.chat.schema.refusal import step

Fault = Callable[[str], str | None]

_SEARCH_SECONDS = 0.3
_PREFIX = "#/$defs/"
_MEANINGS = (
    ("unsatisfiable schema: required > maxproperties",
     "more properties are required than are allowed."),
    ("unsatisfiable schema: regex is empty", "no string satisfies pattern, format and length."),
    ("unsatisfiable", "no document can satisfy it."),
    ("no text can follow", "nothing can satisfy it."),
    ("circular references with sibling", "keywords alongside a `$ref` that refers back to itself "
                                         "are "
     "not supported."),
    ("min/maxproperties only supported", "minProperties and maxProperties are only enforced where "
     "all named properties are required."),
    ("disjoint", "patterns of patternProperties that may match the same name are not supported."),
    ("regex parse error", "a pattern is not understood."),
    ("lookaround", "anchors inside a pattern and look-arounds are not supported."),
    ("failed to generate regex for", "the range of numbers cannot be expressed."),
    ("expected f64", "a number is out of range."),
)  # fmt: skip
_TOO_LARGE = ("fuel", "too large", "too many", "limit", "stack level", "too complex", "exceeded",
              "max is", "unable to determine", "memory")  # fmt: skip
TOO_COMPLEX = "it is too complex to be enforced; make patterns, bounds or alternatives simpler."


def reason(error: str) -> str:
    """Return one sentence for the client; nothing of the grammar or the compiler shows."""
    lowered = error.lower()
    for words, meaning in _MEANINGS:
        if words in lowered:
            return meaning
    if any(word in lowered for word in _TOO_LARGE):
        return TOO_COMPLEX
    found = re.match(r"(?:at )?\d+\(\d+\): ([^\n]{1,160})", error)
    if found is not None and "JSON schema" not in found.group(1):
        return f"it is not understood: {found.group(1).strip()}"
    return "it cannot be compiled."


def schema_fault(grammar: str, fault: Fault) -> dict[str, object] | None:
    """Return pointer and reason of the deepest subschema of a ``%json`` that fails on its own.

    Also the ``function`` whose parameters it is of, where its comment names one.
    """
    until = time.process_time() + _SEARCH_SECONDS
    for kind, text, at in lark.tokens(grammar):
        if kind != "directive" or text != "%json":
            continue
        schema, _ = json.JSONDecoder().raw_decode(grammar, at + len("%json "))
        error = fault(_alone(schema, schema))
        if error is not None and isinstance(schema, Mapping):
            pointer, error = _deepest(schema, error, fault, until)
            found = {"pointer": pointer, "reason": reason(error)}
            return found | {"function": schema.get("$comment")}
    return None


def _alone(schema: object, top: Mapping[str, object]) -> str:
    """Return a grammar of one subschema, with the definitions it may refer to."""
    if isinstance(schema, Mapping):
        kept = {key: top[key] for key in ("x-guidance", "$defs") if key in top}
        schema = {**schema, **kept}
    return "%llguidance {}\nstart: %json " + json.dumps(schema, ensure_ascii=False) + "\n"


def _deepest(top: Mapping[str, object], error: str, fault: Fault, until: float) -> tuple[str, str]:
    """Go down into the first part that fails alone, as long as there is one and time."""
    here: object = top
    pointer = "#"
    seen: set[str] = set()
    while True:
        for place, part in _parts(here, pointer, top, seen):
            if time.process_time() > until:
                return pointer, error
            found = fault(_alone(part, top)) if isinstance(part, Mapping) else None
            if found is not None:
                here, pointer, error = part, place, found
                break
        else:
            return pointer, error


def _parts(
    schema: object, pointer: str, top: Mapping[str, object], seen: set[str]
) -> Iterator[tuple[str, object]]:
    """Yield the subschemas right below, with where they stand in what the client wrote."""
    if not isinstance(schema, Mapping):
        return
    definitions = top.get("$defs")
    for key, value in schema.items():
        if key == "$ref" and isinstance(definitions, Mapping):
            name = str(value).removeprefix(_PREFIX)
            target = definitions.get(name)
            if name not in seen and isinstance(target, Mapping):
                seen.add(name)
                yield str(target.get("$comment", pointer)), target
        elif key in ("properties", "patternProperties") and isinstance(value, Mapping):
            for name, part in value.items():
                yield step(pointer, key, name), part
        elif key in ("items", "additionalProperties"):
            yield step(pointer, key), value
        elif key in ("allOf", "anyOf", "prefixItems") and isinstance(value, list):
            for index, part in enumerate(value):
                yield step(pointer, key, index), part
