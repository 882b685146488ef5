"""Fields and parameters of the OpenAPI document, each in the words of one line.

Knows schemas and the declarations of the parameters; no operation, no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from markupsafe import Markup

from causerie.protocol.parameters import GROUPS, PARAMETERS, SamplingDefaults

_LARGE = 2**31 - 1  # a bound from here on is that of a machine's integers
_OF_MODELS = frozenset(SamplingDefaults.__struct_fields__)
_REFERENCE = "#/components/schemas/"
_GROUP_OF = {
    name: title for title, group in GROUPS if title != "Other" for name in group.__struct_fields__
}


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter or field. Several with the same type and meaning are one, with all names."""

    names: tuple[str, ...]
    required: bool
    kind: Markup
    bounds: str
    """The range of a number, the length of a text or list; empty if anything goes."""
    default: str
    """As JSON; empty if there is none, or if ``text`` says it."""
    text: str


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Fields for one purpose."""

    title: str
    fields: tuple[Field, ...]


def field(name: str, schema: Any, *, required: bool, text: str) -> Field:
    """Return one field; ``text`` is its meaning."""
    inner = _without_null(schema)
    return Field((name,), required, kind(schema), _bounds(inner), _default(name, inner), text)


def fields(schema: Any) -> tuple[Field, ...]:
    """Return the fields of an object, in its order."""
    required = schema.get("required", ())
    return tuple(
        field(name, inner, required=name in required, text=inner.get("description", ""))
        for name, inner in schema.get("properties", {}).items()
    )


def grouped(found: Sequence[Field]) -> tuple[FieldGroup, ...]:
    """Return the fields of a request by their purpose; required ones first."""
    titles = ["", *dict.fromkeys(_GROUP_OF.values()), "More"]
    by_title: dict[str, list[Field]] = {title: [] for title in titles}
    for each in found:
        title = "" if each.required else _GROUP_OF.get(each.names[0], "More")
        by_title[title].append(each)
    return tuple(
        FieldGroup(title, tuple(_joined(each))) for title, each in by_title.items() if each
    )


def kind(schema: Any) -> Markup:
    """Return a type in a few words. That ``null`` means leaving out is said once on the page."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return Markup('<a href="#{}">{}</a>').format(name, name)
    if branches := schema.get("oneOf") or schema.get("anyOf"):
        found = dict.fromkeys(kind(one) for one in branches if one != {"type": "null"})
        return Markup(" or ").join(found)
    if "enum" in schema:
        return _codes(_word(one) for one in schema["enum"] if one is not None)
    kinds = schema.get("type", "anything")
    words = [word for word in ([kinds] if isinstance(kinds, str) else kinds) if word != "null"]
    if words == ["array"] and "items" in schema:
        return Markup("array of ") + kind(schema["items"])
    inner = _codes(schema.get("properties", {}))
    said = Markup(" or ").join(words)
    return said + Markup(" with ") + inner if inner else said


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the objects that a schema mentions, some more than once."""
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name.removeprefix(_REFERENCE)
        for inner in schema.values():
            yield from references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from references(inner)


def _joined(found: Sequence[Field]) -> Iterator[Field]:
    """Yield fields; neighbours that differ in their names alone are one."""
    last: Field | None = None
    for each in found:
        if last and each.text and _facts(last) == _facts(each):
            last = Field((*last.names, *each.names), *_facts(each))
        else:
            if last:
                yield last
            last = each
    if last:
        yield last


def _facts(each: Field) -> tuple[bool, Markup, str, str, str]:
    return each.required, each.kind, each.bounds, each.default, each.text


def _without_null(schema: Any) -> Any:
    """The only branch besides ``null``, or the schema itself."""
    branches = schema.get("oneOf") or schema.get("anyOf") or ()
    others = [one for one in branches if one != {"type": "null"}]
    return others[0] if len(others) == 1 else schema


def _bounds(schema: Any) -> str:
    words = [_range(schema), _lengths(schema)]
    if pattern := schema.get("pattern"):
        words.append(f"matching {pattern}")
    return ", ".join(filter(None, words))


def _range(schema: Any) -> str:
    above = "exclusiveMinimum" in schema
    least = schema.get("exclusiveMinimum" if above else "minimum")
    most = schema.get("maximum")
    least = None if least is None or least <= -_LARGE else least
    most = None if most is None or most >= _LARGE else most
    if least is None:
        return "" if most is None else f"at most {most:g}"
    if most is None:
        return f"above {least:g}" if above else f"{least:g} or more"
    return f"above {least:g} to {most:g}" if above else f"{least:g} to {most:g}"


def _lengths(schema: Any) -> str:
    for least, most, noun in (
        ("minLength", "maxLength", "character"),
        ("minItems", "maxItems", "item"),
    ):
        if (bound := schema.get(most)) is not None:
            return f"no {noun}s" if bound == 0 else f"up to {bound:,} {noun}{'s'[: bound != 1]}"
        if (bound := schema.get(least, 0)) > 1:
            return f"{bound:,} {noun}s or more"
    return ""


def _default(name: str, schema: Any) -> str:
    """The value where none is sent; that of a sampling parameter where a model has none either."""
    if schema.get("default") is not None:
        return _word(schema["default"])
    declared = PARAMETERS.get(name)
    neutral = declared.facts.neutral if declared else ()
    if not neutral or neutral[0] in ([], {}):
        return ""
    value = _word(neutral[0]).removesuffix(".0")
    return f"the model's, else {value}" if name in _OF_MODELS else value


def _codes(words: Any) -> Markup:
    return Markup(", ").join(Markup("<code>{}</code>").format(word) for word in words)


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
