"""Keywords of JSON Schema by meaning; refusals of those that cannot be enforced, with places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
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
        """Return the same refusal, with the function whose parameters it is about."""
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


_LONGEST_NAME = 60  # of what a header names

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")

_DATE = (
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9]))"
)
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+\-]{_HOUR})"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_HOURS = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = "[A-Za-z0-9!#$%&'*+=?^_{|}~\\-]+"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = "[0-9A-Fa-f]{1,4}"

FORMATS = {
    "date-time": f"{_DATE}T{_TIME}",
    "time": _TIME,
    "date": _DATE,
    "duration": f"P(?:[0-9]+W|{_DAYS}(?:{_HOURS})?|{_HOURS})",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOST}",
    "hostname": _HOST,
    "ipv4": rf"{_OCTET}(?:\.{_OCTET}){{3}}",
    "ipv6": "(?:"
    + "|".join(
        [
            f"(?:{_GROUP}:){{7}}{_GROUP}",
            *(f"(?:{_GROUP}:){{1,{7 - few}}}(?::{_GROUP}){{{few}}}" for few in range(1, 7)),
            f"(?:{_GROUP}:){{1,7}}:|:(?::{_GROUP}){{1,7}}|::",
        ]
    )
    + ")",
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
"""Formats that hold while tokens are drawn: in JSON the engine knows them, in other notations these
patterns hold, which admit no more (RFC 3339, 5321, 1123, 4291, 9562)."""

SAID_BY_PATTERN = frozenset({
    "starts_with", "ends_with", "includes", "lowercase", "uppercase", "base64", "base64url",
    "cidrv4", "cidrv6", "cuid", "cuid2", "e164", "hex", "ksuid", "mac", "nanoid", "ulid", "xid",
})  # fmt: skip
"""Names that Zod gives to the pattern which it writes alongside them."""

_SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@\-]|%[0-9A-Fa-f]{2})"
# Absolute addresses with a registered name, an empty authority or none; no IP literals in brackets.
_URI = (
    r"[A-Za-z][A-Za-z0-9+.\-]*:"
    rf"(?://[A-Za-z0-9._~\-]+(?::[0-9]{{1,5}})?(?:/{_SEGMENT}*)*|//(?:/{_SEGMENT}+)+"
    rf"|{_SEGMENT}+(?:/{_SEGMENT}*)*)"
    rf"(?:\?(?:{_SEGMENT}|[/?])*)?(?:#(?:{_SEGMENT}|[/?])*)?"
)
_HEX = "[0-9A-Fa-f]"
_NO_COLON = r"(?:[A-Za-z0-9._~!$&'()*+,;=@\-]|%[0-9A-Fa-f]{2})"
_RELATIVE = (
    rf"(?:/?{_NO_COLON}+(?:/{_SEGMENT}*)*)?"
    rf"(?:\?(?:{_SEGMENT}|[/?])*)?(?:#(?:{_SEGMENT}|[/?])*)?"
)
_REFERENCE = f"(?:{_URI}|{_RELATIVE})"
_POINTER = "(?:/(?:[^/~]|~[01])*)*"
_VARIABLE = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*(?:\*|:[1-9][0-9]{0,3})?"
_TEMPLATE = (
    rf"(?:[A-Za-z0-9._~:/?#@!$&()*+,;=\-]|%{_HEX}{{2}}"
    rf"|\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)
# Characters, escapes, classes and groups of these, each with a quantifier: part of ECMAScript's.
_COUNTS_OF_REGEX = "|".join(
    [*(f"{low},[{low}-9]" for low in range(10)), "[0-9],[1-9][0-9]", "[0-9]{1,2},?"]
)
_ATOM_OF_REGEX = (
    r"(?:[A-Za-z0-9 _\-,:;@#%&=<>!'~`\"/]|\\[dDwWsS.*+?()\[\]{}|/^$\\]|\."
    r"|\[\^?(?:[A-Za-z0-9_ .]|\\[dDwWsS]|a-z|A-Z|0-9)+\])"
    rf"(?:[*+?]|\{{(?:{_COUNTS_OF_REGEX})\}})?"
)
_GROUP_OF_REGEX = rf"\((?:\?:)?(?:{_ATOM_OF_REGEX})+(?:\|(?:{_ATOM_OF_REGEX})+)*\)[*+?]?"
_REGEX = rf"\^?(?:{_ATOM_OF_REGEX}|{_GROUP_OF_REGEX})*\$?"

SPELLED = {
    "uri": _URI,
    "url": _URI,
    "uri-reference": _REFERENCE,
    "uri-template": _TEMPLATE,
    "iri": _URI,
    "iri-reference": _REFERENCE,
    "idn-email": FORMATS["email"],
    "idn-hostname": FORMATS["hostname"],
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "regex": _REGEX,
    "byte": "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "char": r"[\s\S]",
    "decimal": r"-?[0-9]+(?:\.[0-9]+)?",
    **{
        f"uuid{version}": f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89ABab]{_HEX}{{3}}-"
        f"{_HEX}{{12}}"
        for version in range(1, 9)
    },
}
"""Formats that the engine does not know, as patterns: all others of the standard, and those that
libraries write (RFC 3986, 4648, 6570, 6901).

Each admits a part of its format: addresses and names with international letters are ASCII.
"""

NOTES = frozenset({
    "password", "binary", "path", "file-path", "directory-path", "multi-line", "textarea",
    "commonmark", "markdown", "html",
})  # fmt: skip
"""Formats that say what a text is for, or what it is kept in: any text follows them."""

ENFORCED = frozenset({
    "$id", "type", "const", "enum", "$ref", "allOf", "anyOf", "oneOf",
    "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "items", "prefixItems", "minItems", "maxItems", "uniqueItems",
    "properties", "patternProperties", "additionalProperties", "required",
    "minProperties", "maxProperties", "propertyNames",
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies",
    "contains", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems",
})  # fmt: skip
"""Keywords that are enforced, at least with some values."""

# Keywords of the standard, and of well-known libraries, without effect on validity.
_ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "example", "$comment", "deprecated",
    "readOnly", "writeOnly", "$schema", "id", "$anchor", "$dynamicAnchor",
    "$recursiveAnchor", "$vocabulary", "$defs", "definitions", "contentMediaType",
    "contentEncoding", "contentSchema", "discriminator", "externalDocs", "xml",
    "markdownDescription", "enumNames", "enumDescriptions", "propertyOrdering",
    "additionalItems",  # read together with an array of items, without effect otherwise
})  # fmt: skip

CONDITIONS = frozenset({
    "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "contains",
    "unevaluatedProperties", "unevaluatedItems",
})  # fmt: skip
"""Keywords that no grammar has; :mod:`causerie.chat.schema.narrowing` says them with others."""

# Keywords combined with the rest of a schema, and others that decide its possible properties.
IN_PLACE = frozenset({"$ref", "allOf", "anyOf", "oneOf", "const", "enum"})
APPLIES = IN_PLACE | {"properties", "patternProperties", "additionalProperties", "required",
                      "minProperties", "maxProperties"}  # fmt: skip

REFUSED = frozenset({"$dynamicRef", "$recursiveRef"})
_RULES = ENFORCED | REFUSED
_LEAST_SIMILAR = 0.8


def is_applied(key: str) -> bool:
    """Return whether subschemas may stand in the value of a keyword."""
    return key in _RULES or key in ("$defs", "definitions", "additionalItems")


def is_annotation(key: str) -> bool:
    """Return whether a keyword has no effect on validity.

    The standard makes every unknown keyword an annotation (JSON Schema Core 2020-12, 6.5).
    """
    return key not in _RULES


def is_unknown(key: str) -> bool:
    """Return whether a keyword is an annotation that nobody knows, perhaps a misspelt rule.

    Names that begin with ``x-`` are notes by convention.
    """
    if key in _RULES or key in _ANNOTATIONS:
        return False
    return not key.startswith("x-") or key == "x-guidance"


def ignored_keyword(key: str) -> str:
    """Return the header text for an unknown keyword, with a known one of similar spelling."""
    rules = {rule.casefold(): rule for rule in sorted(_RULES)}
    near = get_close_matches(key[:_LONGEST_NAME].casefold(), rules, n=1, cutoff=_LEAST_SIMILAR)
    hint = f" (similar to {rules[near[0]]})" if near else ""
    return f"keyword {_in_header(key)} ignored{hint}"


def ignored_sibling(key: str) -> str:
    """Return how a response header names a keyword that its draft ignores."""
    return f"keyword {_in_header(key)} next to $ref ignored"


def ignored_format(name: str) -> str:
    return f"format {_in_header(name)} ignored"


def _in_header(name: str) -> str:
    return quote(name[:_LONGEST_NAME], safe="$@:/", errors="replace")
