"""The page at `/docs`: the OpenAPI document for people, with examples that run from the page.

The page holds nothing of the service but the document and paths of doors. Its script asks this
service alone, as any client of the API, with the key that the visitor types; the key stays in
the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from causerie.http.exchange import Exchange
from causerie.http.openapi import document
from causerie.http.pages.branding import Branding
from causerie.http.pages.templating import StandalonePage
from causerie.protocol.parameters import GROUPS, PARAMETERS, SamplingDefaults

_ROUTER = "/router/v1"
_TITLES = {"/v1": "Models", _ROUTER: "Router", "": "Service"}  # by the base of a path
_REFERENCE = "#/components/schemas/"
_LARGE = 2**31 - 1  # a bound from here on is that of a machine's integers
_MODEL_DEFAULTS = frozenset(SamplingDefaults.__struct_fields__)
_GROUP_OF = {
    name: title for title, group in GROUPS if title != "Other" for name in group.__struct_fields__
}


class Field(Struct, frozen=True):
    """A parameter or field of a request, or several that differ in name only, with all names."""

    names: tuple[str, ...]
    required: bool
    kind: Markup
    bounds: str
    """The range of a number, the length of a text or list; empty if anything goes."""
    default: str
    """The default value as JSON; empty if there is none, or if ``text`` says it."""
    text: str


class Operation(Struct, frozen=True):
    base: str
    """Usual path of the base URL; empty for paths of the service."""
    path: str
    """The path below the base."""
    method: str
    described: Any
    """Its Operation Object in the document."""
    body: Sequence[tuple[str, Sequence[Field]]]
    """Fields of the request by their purpose; without those of ``like``."""
    like: str
    """Operation whose body has all fields besides those in ``body``; empty if there is none."""

    @property
    def id(self) -> str:
        return str(self.described["operationId"])

    @property
    def body_name(self) -> str:
        return _find_body_schema_name_or_empty(self.described)

    @property
    def key(self) -> str:
        """Return whether an API key is sent: ``none``, ``optional`` or ``required``."""
        security = self.described.get("security", [])
        return "none" if not any(security) else "required" if all(security) else "optional"

    @property
    def example(self) -> str:
        """Return the body that an example sends, as JSON; empty if there is none."""
        sent = _find_json_body(self.described)
        return msgspec.json.format(msgspec.json.encode(sent["example"])).decode() if sent else ""

    def parameters(self, *places: str) -> list[Any]:
        return [each for each in self.described.get("parameters", []) if each["in"] in places]

    def responses(self, *, errors: bool) -> list[tuple[str, Any]]:
        """Return pairs of status and response: those with the error schema, or else all others."""
        responses = self.described["responses"].items()
        return [each for each in responses if ("Error" in references(each[1])) is errors]


class DocsPage(StandalonePage):
    def __init__(self, static_prefix: str, brand: Branding, max_messages: int) -> None:
        filters = {
            "kind": kind,
            "response_kind": response_kind,
            "fields_of": fields,
            "field_of": parameter_field,
        }
        super().__init__("docs.html", static_prefix, brand, filters)
        self._openapi_document: Any = document(max_messages)
        self._operations = operations(self._openapi_document)

    async def show(
        self, exchange: Exchange, base_urls: tuple[str, ...], router: str, home: str = ""
    ) -> None:
        """Send the page for these base URLs; without a ``router`` it omits the router's operations.

        ``home`` is the title of the page for people at ``/``, if there is one.
        """
        doors = (base_urls, router, home)
        await self.send(exchange, doors, lambda: self._build_template_values(*doors), "")

    def _build_template_values(
        self, base_urls: tuple[str, ...], router: str, home: str
    ) -> dict[str, object]:
        shown = [each for each in self._operations if router or each.base != _ROUTER]
        shown.sort(key=lambda each: bool(router) and each.base != _ROUTER)  # what is read most
        schemas = self._openapi_document["components"]["schemas"]
        bodies = {each.body_name for each in shown}
        names = reachable([each.described for each in shown], schemas) - bodies
        by_base = groupby(shown, lambda each: each.base)
        errors = {status: error for each in shown for status, error in each.responses(errors=True)}
        return {
            "info": self._openapi_document["info"],
            "groups": [(_TITLES[base], [*group]) for base, group in by_base],
            "errors": sorted(errors.items()),
            "summaries": {each.id: each.described["summary"] for each in shown},
            "objects": {name: schema for name, schema in schemas.items() if name in names},
            "base_urls": base_urls,
            "router": router,
            "home": home,
        }


def operations(document: Any) -> Sequence[Operation]:
    """Return the operations of an OpenAPI document, sorted by the base of their paths."""
    schemas, found = document["components"]["schemas"], []
    bodies: dict[str, Sequence[Field]] = {}
    for full, methods in document["paths"].items():
        base = next(each for each in _TITLES if full.startswith(f"{each}/"))
        for method, described in methods.items():
            body = fields(schemas.get(_find_body_schema_name_or_empty(described), {}))
            own, like = _get_own_fields_and_similar_operation(body, bodies)
            bodies[described["operationId"]] = body
            path = full.removeprefix(base)
            found.append(Operation(base, path, method.upper(), described, grouped(own), like))
    return sorted(found, key=lambda each: list(_TITLES).index(each.base))


def _find_json_body(operation: Any) -> Any:
    return operation.get("requestBody", {}).get("content", {}).get("application/json")


def _find_body_schema_name_or_empty(operation: Any) -> str:
    sent = _find_json_body(operation)
    return next(references(sent["schema"])) if sent else ""


# A body that shares more than half of its fields with one before is shown by its differences.
def _get_own_fields_and_similar_operation(
    body_fields: Sequence[Field], earlier_bodies: dict[str, Sequence[Field]]
) -> tuple[Sequence[Field], str]:
    for operation, known in earlier_bodies.items():
        more = [each for each in body_fields if each not in known]
        if len(more) < len(body_fields) / 2:
            return more, operation
    return body_fields, ""


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the component schemas that a schema refers to, some repeatedly."""
    if isinstance(schema, dict):
        if isinstance(name := schema.get("$ref"), str):
            yield name.removeprefix(_REFERENCE)
        schema = [*schema.values()]
    for inner in schema if isinstance(schema, list) else ():
        yield from references(inner)


def reachable(described: Any, schemas: Any) -> set[str]:
    found: set[str] = set()
    waiting = set(references(described))
    while waiting:
        found |= waiting
        waiting = {each for name in waiting for each in references(schemas[name])} - found
    return found


def fields(schema: Any) -> Sequence[Field]:
    required, properties = schema.get("required", ()), schema.get("properties", {}).items()
    return [
        _build_field(name, one, name in required, one.get("description", ""))
        for name, one in properties
    ]


def parameter_field(described: Any) -> Field:
    name, schema = described["name"], described["schema"]
    return _build_field(name, schema, described["required"], described["description"])


def _build_field(name: str, schema: Any, required: bool, text: str) -> Field:
    branches = schema.get("oneOf") or schema.get("anyOf") or ()
    others = [one for one in branches if one != {"type": "null"}]
    inner = others[0] if len(others) == 1 else schema
    return Field((name,), required, kind(schema), bounds(inner), _format_default(name, inner), text)


def grouped(found: Sequence[Field]) -> Sequence[tuple[str, Sequence[Field]]]:
    """Group the fields of a request under titles; required fields come first, without a title."""
    groups: dict[str, list[Field]] = {t: [] for t in ("", *_GROUP_OF.values(), "More")}
    for each in found:
        groups["" if each.required else _GROUP_OF.get(each.names[0], "More")].append(each)
    return [(title, [*_merge_neighbour_fields(group)]) for title, group in groups.items() if group]


# Neighbours that differ in their names alone are one field.
def _merge_neighbour_fields(group: Sequence[Field]) -> Iterator[Field]:
    for _, same in groupby(group, lambda each: (replace(each, names=()), each.text or each.names)):
        first, *more = same
        names = (name for each in more for name in each.names)
        yield replace(first, names=(*first.names, *names))


def kind(schema: Any) -> Markup:
    """Return the type of a schema in a few words of HTML, without ``null``."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return Markup('<a href="#{}">{}</a>').format(name, name)
    if branches := schema.get("oneOf") or schema.get("anyOf"):
        return _join_by_or_as_html(kind(one) for one in branches if one != {"type": "null"})
    if "enum" in schema:
        return _render_code_list(_text_or_json(one) for one in schema["enum"] if one is not None)
    types = schema.get("type", "anything")
    words = [word for word in ([types] if isinstance(types, str) else types) if word != "null"]
    if words == ["array"] and "items" in schema:
        return Markup("array of ") + kind(schema["items"])
    inner = _render_code_list(schema.get("properties", {}))
    return _join_by_or_as_html(words) + (Markup(" with ") + inner if inner else "")


def response_kind(response: Any) -> Markup:
    content = response.get("content", {}).values()
    return _join_by_or_as_html(kind(each.get("schema") or each["itemSchema"]) for each in content)


def _join_by_or_as_html(words: Iterable[str]) -> Markup:
    return Markup(" or ").join(dict.fromkeys(words))


def bounds(schema: Any) -> str:
    """Describe a schema's number range, length bounds and pattern; empty if anything goes."""
    found = [_describe_number_range(schema), _describe_length_bounds(schema)]
    if pattern := schema.get("pattern"):
        found.append(f"matching {pattern}")
    return ", ".join(filter(None, found))


def _describe_number_range(schema: Any) -> str:
    above = schema.get("exclusiveMinimum")
    least, most = schema.get("minimum", above), schema.get("maximum")
    low = "" if least is None or least <= -_LARGE else f"{least:g}"
    high = "" if most is None or most >= _LARGE else f"{most:g}"
    if low and above is not None:
        low = f"above {low}"
    if low and high:
        return f"{low} to {high}"
    if high:
        return f"at most {high}"
    return f"{low} or more" if low and above is None else low


def _describe_length_bounds(schema: Any) -> str:
    for size, noun in (("Length", "character"), ("Items", "item")):
        if (bound := schema.get(f"max{size}")) is not None:
            return f"no {noun}s" if bound == 0 else f"up to {bound:,} {noun}{'s'[: bound != 1]}"
        if (bound := schema.get(f"min{size}", 0)) > 1:
            return f"{bound:,} {noun}s or more"
    return ""


# The value where none is sent. A sampling parameter has the model's before its own.
def _format_default(parameter_name: str, schema: Any) -> str:
    if schema.get("default") is not None:
        return _text_or_json(schema["default"])
    declared = PARAMETERS.get(parameter_name)
    neutral = declared.facts.neutral if declared else ()
    if not neutral or neutral[0] in ([], {}):
        return ""
    value = _text_or_json(neutral[0]).removesuffix(".0")
    return f"the model's, else {value}" if parameter_name in _MODEL_DEFAULTS else value


def _render_code_list(words: Iterable[str]) -> Markup:
    return Markup(", ").join(Markup("<code>{}</code>").format(word) for word in words)


def _text_or_json(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
