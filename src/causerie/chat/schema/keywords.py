"""Keywords of JSON Schema by meaning; refusals of those that cannot be enforced, with places."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

Schema = Mapping[str, object]


class SchemaRefused(ValueError):
    """A schema, a pattern or a grammar cannot be enforced as written.

    ``param`` names the field of the request. ``pointer`` is a JSON Pointer into the schema, as a
    fragment (``#/properties/a``); ``reason`` is a sentence without that place. ``function`` is
    the function whose parameters the schema describes.
    """

    def __init__(
        self, param: str, reason: str, pointer: str | None = None, function: str = ""
    ) -> None:
        place = "" if pointer is None else f"The schema at {pointer} cannot be enforced: "
        owner = f"Parameters of `{function}`: " if function else ""
        super().__init__(f"{owner}{place}{reason}")
        self.param, self.reason, self.pointer = param, reason, pointer

    def of_function(self, name: str) -> SchemaRefused:
        """Return a copy of the refusal that names the function whose parameters it is about."""
        return SchemaRefused(self.param, self.reason, self.pointer, name)


def step(pointer: str, *keys: str | int) -> str:
    """Return ``pointer`` with ``keys`` appended, escaped as JSON Pointers in fragments demand."""
    escaped = (str(key).replace("~", "~0").replace("/", "~1").replace("%", "%25") for key in keys)
    return "/".join((pointer, *escaped))


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def one_or_several(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def constants(schema: Schema) -> list[Any] | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else None


def part_at(root: object, pointer: str) -> object:
    """Return the part of a schema that a JSON Pointer names; raise :class:`LookupError`."""
    found = root
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found[key]
        elif isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 10:
            found = found[int(key)]
        else:
            raise LookupError(pointer)
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """A schema and where it stands; ``alone`` if no other schema speaks of the same value."""

    schema: Schema
    pointer: str
    depth: int
    alone: bool
    out: dict[str, object]  # what is written of it

    @property
    def by_itself(self) -> bool:
        """Return whether no other schema, not even a part of this one, applies to the value."""
        return self.alone and self.schema.keys().isdisjoint(IN_PLACE)


AT = "x-at"  # where a part of a schema stood in what was sent
_LONGEST_NAME = 60  # of what a header names

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
KINDS = tuple(kind for kind in TYPES if kind != "integer")  # which are numbers

# What each of these tables holds stands in ``keywords.toml``.
_FILE = Path(__file__).with_name("keywords.toml")
_TABLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text("utf-8"))
_NAMES = {name: frozenset(words) for name, words in _TABLES["names"].items()}
ENFORCED, CONDITIONS, REFUSED = (_NAMES[name] for name in ("enforced", "conditions", "refused"))
IN_PLACE = _NAMES["in_place"]
APPLIES = IN_PLACE | _NAMES["of_properties"]
SAID_BY_PATTERN, NOTES = _NAMES["said_by_pattern"], _NAMES["notes"]
_ANNOTATIONS, _RULES = _NAMES["annotations"], ENFORCED | REFUSED
APPLIED = _RULES | {"$defs", "definitions", "additionalItems"}
"""Keywords in whose values subschemas may stand."""

_PART = re.compile(r"<([a-z0-9-]+)>")


def _fill_parts_into_patterns(table_name: str, known_parts: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, pattern in _TABLES[table_name].items():
        found[name] = _PART.sub(lambda part: found.get(part[1]) or known_parts[part[1]], pattern)
    return found


_PARTS = _fill_parts_into_patterns("parts", {})
FORMATS = _fill_parts_into_patterns("formats", _PARTS)
SPELLED = _fill_parts_into_patterns("spelled", _PARTS | FORMATS)
_LEAST_SIMILAR = 0.8


def is_annotation(key: str) -> bool:
    """Return whether a keyword has no effect on validity, as unknown ones (Core 2020-12, 6.5)."""
    return key not in _RULES


def is_unknown(key: str) -> bool:
    """Return whether a keyword is unknown, perhaps a misspelt rule, and no note (``x-``)."""
    if key in _RULES or key in _ANNOTATIONS:
        return False
    return not key.startswith("x-") or key == "x-guidance"


def ignored_keyword(key: str) -> str:
    """Return the header text for an unknown keyword, with a known one of similar spelling."""
    rules = {rule.casefold(): rule for rule in sorted(_RULES)}
    near = get_close_matches(key[:_LONGEST_NAME].casefold(), rules, n=1, cutoff=_LEAST_SIMILAR)
    hint = f" (similar to {rules[near[0]]})" if near else ""
    return f"keyword {_encode_for_header(key)} ignored{hint}"


def ignored_sibling(key: str) -> str:
    """Return the header text for a keyword beside ``$ref`` that the draft of its schema ignores."""
    return f"keyword {_encode_for_header(key)} next to $ref ignored"


def ignored_format(name: str) -> str:
    return f"format {_encode_for_header(name)} ignored"


def _encode_for_header(word: str) -> str:
    return quote(word[:_LONGEST_NAME], safe="$@:/", errors="replace")
