"""References inside the schemas of a request: none that a server would have to fetch.

A library that validates by a schema may ask the host that its ``$ref`` names, from inside the
server's network. So a reference leads to a place of the same schema, or to what has its ``$id``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urldefrag, urljoin

from causerie.errors import InvalidRequest

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
# The encoded form of every such field, and one that leads to a place of its own schema.
_REFERENCE, _LOCAL = b'ef":"', b'ef":"#'
_MOST_NODES = 20_000


def check_references(fields: Mapping[str, Any], body: bytes) -> None:
    """Raise :class:`InvalidRequest` where a schema of ``fields``, encoded as ``body``, has another.

    A body whose references are all local, as nearly every one is, is not looked at any closer.
    """
    if body.count(_REFERENCE) == body.count(_LOCAL):
        return
    for param, schema in _schemas(fields):
        named, references = set(), []
        for count, (node, base) in enumerate(_nodes(schema)):
            if count >= _MOST_NODES:
                raise _unsupported(param, "is too large for references to names; shorten it.")
            if node.get("$id") is not None:
                named.add(base)
            references += [(base, node[name]) for name in _REFERENCES if name in node]
        if not all(_leads_inside(reference, base, named) for base, reference in references):
            raise _unsupported(
                param,
                "has a reference that leads out of the schema, which no provider may fetch; put "
                'what it names into `$defs`, and write "#/$defs/NAME".',
            )


def _schemas(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, tool in enumerate(fields.get("tools") or ()):
        yield f"tools[{index}].function.parameters", tool["function"].get("parameters")
    shape = fields.get("response_format") or {}
    yield "response_format.json_schema.schema", (shape.get("json_schema") or {}).get("schema")
    yield "response_format.schema", shape.get("schema")
    yield "structured_outputs.json", (fields.get("structured_outputs") or {}).get("json")


def _nodes(schema: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The objects of a schema, without those that are data, each with the name it goes by."""
    left = [(schema, "")]
    while left:
        each, base = left.pop()
        if isinstance(each, dict):
            if isinstance(each.get("$id"), str):
                base = _absolute(base, each["$id"])
            yield each, base
            left += [(value, base) for name, value in each.items() if name not in _DATA]
        elif isinstance(each, list):
            left += [(one, base) for one in each]


def _leads_inside(reference: object, base: str, named: set[str]) -> bool:
    if not isinstance(reference, str) or reference.startswith("#"):
        return True
    return _absolute(base, reference) in named


def _absolute(base: str, name: str) -> str:
    """The name of a schema, seen from one named ``base``, without the place inside of it."""
    try:
        return urldefrag(urljoin(base, name)).url
    except ValueError:  # it is no address
        return name


def _unsupported(param: str, message: str) -> InvalidRequest:
    return InvalidRequest(f"`{param}` {message}", code="unsupported_schema", param=param)
