"""Rewrite common roundabout schemas of libraries into plain ones.

A map whose keys are an enumeration or have a pattern (``propertyNames``) becomes
the properties themselves; a schema that admits nothing (``not: {}``) becomes ``false``;
``nullable`` next to a type becomes one of its types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from causerie.chat.schema.keywords import SAID_BY_PATTERN, is_annotation
from causerie.chat.schema.pattern import Refused, searches
from causerie.chat.schema.refusal import step

_SIZES = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "minContains", "maxContains",
})  # fmt: skip
_MOST_STEPS = 16  # from reference to reference


def satisfiable(schema: Mapping[str, object]) -> Mapping[str, object] | bool:
    """Return a schema that says the same to a check: ``False`` if it admits nothing."""
    if is_never(schema):
        return False
    if any(isinstance(schema.get(key), float) for key in _SIZES):
        schema = {key: _size(of) if key in _SIZES else of for key, of in schema.items()}
    return _without_nullable(schema) if "nullable" in schema else schema


def _size(value: object) -> object:
    """Return a count as a whole number, where it is one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain(
    schema: Mapping[str, object], pointer: str, resolve: Callable[[str], object]
) -> Mapping[str, object] | bool:
    """Return a schema that says the same, plainly.

    ``pointer`` is where it stands, ``resolve`` gives what a reference stands for.
    """
    said = satisfiable(schema)
    if isinstance(said, bool) or "propertyNames" not in said:
        return said
    schema = said
    named = _target(schema.get("propertyNames"), resolve)
    names, pattern = _names(named), _pattern(named)
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if "patternProperties" in schema or not isinstance(known, Mapping):
        return schema
    if isinstance(others, Mapping):
        others = {"$ref": step(pointer, "additionalProperties")}
    rest = {key: value for key, value in schema.items() if key != "propertyNames"}
    if names is not None:
        properties = {name: known.get(name, others) for name in names}
        return {**rest, "properties": properties, "additionalProperties": False}
    if pattern is not None and not known:
        return {**rest, "patternProperties": {pattern: others}, "additionalProperties": False}
    return schema


def declared_types(schema: Mapping[str, object]) -> object:
    """Return the ``type`` of a schema, with ``null`` if it is ``nullable`` (OpenAPI 3.0.3).

    Without a type alongside, ``nullable`` says nothing.
    """
    types = schema.get("type")
    if schema.get("nullable") is not True or types is None:
        return types
    named = types if isinstance(types, list) else [types]
    return named if "null" in named else [*named, "null"]


def _without_nullable(schema: Mapping[str, object]) -> Mapping[str, object]:
    rest = {key: value for key, value in schema.items() if key != "nullable"}
    return {**rest, "type": declared_types(schema)} if "type" in rest else rest


def is_never(schema: object) -> bool:
    """Return whether the schema admits nothing."""
    if not isinstance(schema, Mapping):
        return schema is False
    never = schema.get("not", False)
    return never is True or (isinstance(never, Mapping) and not _said(never))


def _target(schema: object, resolve: Callable[[str], object]) -> Mapping[str, object]:
    """Return the keywords of a schema for names, after following its references."""
    said = _said(schema)
    for _ in range(_MOST_STEPS):
        reference = said.get("$ref")
        if len(said) > 1 or not (isinstance(reference, str) and reference.startswith("#")):
            break
        said = _said(resolve(reference))
    return said


def _names(said: Mapping[str, object]) -> Sequence[str] | None:
    """Return the names that a schema for names lists; ``None`` if it says anything else."""
    options = said.get("anyOf") if said.keys() <= {"type", "anyOf"} else None
    if not isinstance(options, list) or said.get("type", "string") != "string":
        return _constants(said)
    each = [_constants(_said(option)) for option in options]
    return [name for names in each for name in names or ()] if None not in each else None


def _pattern(said: Mapping[str, object]) -> str | None:
    """Return the pattern or lengths of a schema for names, as a pattern, if it has nothing else."""
    rules = {key: value for key, value in said.items() if (key, value) != ("type", "string")}
    if rules.get("format") in SAID_BY_PATTERN and "pattern" in rules:
        del rules["format"]
    pattern = rules.get("pattern")
    lengths = rules.keys() <= {"minLength", "maxLength"}
    if rules and lengths and all(type(size) is int and size >= 0 for size in rules.values()):
        low, high = rules.get("minLength", 0), rules.get("maxLength", "")
        pattern = f"^[\\s\\S]{{{low},{high}}}$"
    elif rules.keys() != {"pattern"}:
        return None
    try:
        return pattern if isinstance(pattern, str) and len(searches(pattern)) == 1 else None
    except Refused:
        return None


def _said(schema: object) -> Mapping[str, object]:
    if not isinstance(schema, Mapping):
        return {}
    return {key: value for key, value in schema.items() if not is_annotation(key)}


def _constants(said: Mapping[str, object]) -> Sequence[str] | None:
    if said.get("type", "string") != "string" or len(said.keys() - {"type"}) != 1:
        return None
    options = [said["const"]] if "const" in said else said.get("enum")
    return (
        [name for name in options if isinstance(name, str)] if isinstance(options, list) else None
    )
