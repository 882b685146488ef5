"""References inside the schemas of a request: none that a server would have to fetch.

A library that validates by a schema may ask the host that its ``$ref`` or ``$schema`` names,
from inside the server's network. So a reference leads to a place of the same schema, or to what
has its ``$id``, and a dialect is one that every library knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from causerie.errors import InvalidRequest
from causerie.protocol.numbers import whole_number

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords with data, and keywords with schemas by names that are no keywords.
_DATA = frozenset({"const", "default", "enum", "example", "examples"})
_BY_NAME = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_DIALECT = re.compile(
    r"https?://json-schema\.org/(schema|draft(-0[3-9]|/[0-9]{4}-[0-9]{2}|/next)/schema)#?"
    r"|https://spec\.openapis\.org/oas/3\.1/dialect/[a-z0-9-]{1,20}"
)
_USUAL_DIALECTS = tuple(
    f'"$schema":"{address}"'.encode()
    for address in (
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    )
)
_MOST_NODES = 20_000
_MOST_ADDRESSES = 1000

_encode = msgspec.json.Encoder().encode


def check_references(fields: Mapping[str, Any]) -> None:
    """Raise :class:`InvalidRequest` where a schema leads out of itself; most are not walked."""
    walk = _SchemaWalk()
    for param, schema in _schemas(fields):
        if isinstance(schema, dict) and _may_lead_out(_encode(schema)):
            try:
                walk.check(schema)
            except ValueError as failure:
                raise InvalidRequest(
                    f"`{param}` {failure}", code="unsupported_schema", param=param
                ) from failure


def _schemas(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, tool in enumerate(fields.get("tools") or ()):
        yield f"tools[{index}].function.parameters", tool["function"].get("parameters")
    shape = fields.get("response_format") or {}
    yield "response_format.json_schema.schema", (shape.get("json_schema") or {}).get("schema")
    yield "response_format.schema", shape.get("schema")
    yield "structured_outputs.json", (fields.get("structured_outputs") or {}).get("json")


def _may_lead_out(schema: bytes) -> bool:
    references = schema.count(b'ef":')  # of `$ref`, `$dynamicRef` and `$recursiveRef`
    if references != schema.count(b'ef":"#') or b'"$id":' in schema:
        return True
    if references and b'"id":"' in schema:
        return True
    dialects = schema.count(b'"$schema":')
    return dialects != 0 and dialects != sum(map(schema.count, _USUAL_DIALECTS))


class _SchemaWalk:
    def __init__(self) -> None:
        self._nodes = self._addresses = 0  # of all schemas of a request

    def check(self, root: dict[str, Any]) -> None:
        """Raise :class:`ValueError` for a reference or a dialect that is not inside."""
        self._root = root
        self._documents: dict[str, dict[str, Any]] = {"": root}
        self._references: list[tuple[str, str]] = []
        self._seen: set[int] = set()
        self._visit(root, "")
        outside = []
        while self._references:
            base, reference = self._references.pop()
            address, fragment = self._absolute(base, reference)
            document = self._documents.get(address)
            if document is None:
                outside.append(address)
            elif fragment.startswith("/"):
                # What is data elsewhere is a schema where a reference names it.
                self._visit(_target_of_pointer(document, fragment), address)
        if any(address not in self._documents for address in outside):
            raise ValueError(
                "has a reference that leads out of the schema, which no provider may fetch; put "
                'what it names into `$defs`, and write "#/$defs/NAME".'
            )

    def _count(self, nodes: int = 0, addresses: int = 0) -> None:
        self._nodes += nodes
        self._addresses += addresses
        if self._nodes > _MOST_NODES or self._addresses > _MOST_ADDRESSES:
            raise ValueError("is too large for references to names; shorten it.")

    def _visit(self, value: object, base: str) -> None:
        left: list[tuple[object, str, bool]] = [(value, base, False)]
        while left:
            each, base, by_name = left.pop()
            if isinstance(each, list):
                left += [(one, base, False) for one in each if isinstance(one, dict | list)]
            if not isinstance(each, dict) or (not by_name and id(each) in self._seen):
                continue
            self._count(nodes=1)
            if not by_name:
                self._seen.add(id(each))
                base = self._record_references(each, base)
            left += [
                (one, base, not by_name and name in _BY_NAME)
                for name, one in each.items()
                if isinstance(one, dict | list) and (by_name or name not in _DATA)
            ]

    def _record_references(self, schema: dict[str, Any], base: str) -> str:
        name, older = schema.get("$id"), schema.get("id")
        if isinstance(name, str):
            base, _ = self._absolute(base, name)
            self._documents.setdefault(base, schema)
        elif isinstance(older, str) and not older.startswith("#"):
            base = self._base_of_old_id(schema, base, older)
        dialect = schema.get("$schema")
        if dialect is not None and not (
            isinstance(dialect, str) and _DIALECT.fullmatch(dialect) is not None
        ):
            raise ValueError(
                "names in `$schema` a dialect that no provider may fetch; leave it out."
            )
        for keyword in _REFERENCES:
            if keyword in schema:
                reference = schema[keyword]
                if not isinstance(reference, str):
                    raise ValueError(
                        f'has a `{keyword}` that is no text; it looks like "#/$defs/NAME".'
                    )
                self._references.append((base, reference))
        return base

    def _base_of_old_id(self, schema: dict[str, Any], base: str, name: str) -> str:
        # Other schemas may have `id` as a note, so it names nothing but the whole schema.
        address, _ = self._absolute(base, name)
        if schema is self._root:
            self._documents.setdefault(address, schema)
        elif not _has_scheme(address):
            return base
        return address

    def _absolute(self, base: str, name: str) -> tuple[str, str]:
        if name.startswith("#"):
            return base, name[1:]
        self._count(addresses=1)
        try:
            address, fragment = urldefrag(urljoin(base, name))
        except ValueError:  # it is no address
            return name, ""
        return address, fragment


def _target_of_pointer(document: object, pointer: str) -> object:
    found = document
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            index = whole_number(key)
            found = found[index] if index is not None and index < len(found) else None
        elif isinstance(found, dict):
            found = found.get(key)
        else:
            return None
    return found


def _has_scheme(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return True
    return bool(parts.scheme or parts.netloc)
