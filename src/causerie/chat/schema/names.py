"""Names that are listed (``propertyNames`` with ``enum``), as the properties that they are.

So libraries write a map whose keys are an enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from causerie.chat.schema.keywords import is_annotation
from causerie.chat.schema.refusal import step

_MOST_STEPS = 16  # from reference to reference


def listed(
    schema: Mapping[str, object], pointer: str, resolve: Callable[[str], object]
) -> Mapping[str, object]:
    """A schema that says the same of its properties, without a list of their names.

    ``pointer`` is where it stands, ``resolve`` gives what a reference stands for.
    """
    names = _names(schema.get("propertyNames"), resolve)
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if names is None or "patternProperties" in schema or not isinstance(known, Mapping):
        return schema
    if isinstance(others, Mapping):
        others = {"$ref": step(pointer, "additionalProperties")}
    return {
        **{key: value for key, value in schema.items() if key != "propertyNames"},
        "properties": {name: known.get(name, others) for name in names},
        "additionalProperties": False,
    }


def _names(schema: object, resolve: Callable[[str], object]) -> Sequence[str] | None:
    """The names that a schema for names lists; ``None`` where it says anything else."""
    for _ in range(_MOST_STEPS):
        said = _said(schema)
        reference = said.get("$ref")
        if len(said) > 1 or not (isinstance(reference, str) and reference.startswith("#")):
            break
        schema = resolve(reference)
    options = said.get("anyOf") if said.keys() <= {"type", "anyOf"} else None
    if not isinstance(options, list) or said.get("type", "string") != "string":
        return _constants(said)
    each = [_constants(_said(option)) for option in options]
    return [name for names in each for name in names or ()] if None not in each else None


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
