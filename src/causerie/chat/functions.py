"""The functions that a model may call, checked to be enforceable."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from causerie.chat.call_syntax.base import Schema
from causerie.chat.call_syntax.choices import anchored, closed_schema
from causerie.chat.encoding import spells
from causerie.chat.schema import check_size, prepare
from causerie.chat.schema.compiled import Work, WorkExceeded
from causerie.chat.schema.finite import without_endless
from causerie.chat.schema.keywords import ignored_sibling
from causerie.chat.schema.refusal import of_function, unsupported
from causerie.chat.schema.siblings import without_siblings
from causerie.chat.schema_cache import SchemaCache
from causerie.chat.validation import AT_ONCE, CheckedSchema
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Tool


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions that may be called."""

    tools: Mapping[str, Schema]
    """Closed schemas by name, as constraints and readers take them."""
    text: str = ""
    """All schemas as they were sent, as JSON."""
    spell: bool = False
    """Whether a constraint of them may hold the text of a control token."""
    arguments: Mapping[str, CheckedSchema] = field(default_factory=dict)
    """Schemas by name, to check finished calls by."""
    watched: bool = False
    """Whether a schema has rules that no grammar has."""
    ignored: tuple[str, ...] = ()
    """Annotations of their schemas that nobody knows, as a response header names them."""

    def admits(self, name: str, arguments: str) -> bool:
        """Return whether the text of arguments follows the schema of the function ``name``.

        They do if that takes long to check: the last check says more.
        """
        schema = self.arguments.get(name)
        if schema is None:
            return False
        try:
            return schema.fault_of_text(arguments, Work(AT_ONCE)) is None
        except WorkExceeded:
            return True


async def callable_functions(
    request: ChatRequest, control_tokens: Collection[str], schema_cache: SchemaCache
) -> Functions:
    """Those that ``tool_choice`` leaves; raises ``InvalidRequest`` (``unsupported_schema``)."""
    allowed = request.tool_choice.allowed
    asked = [
        (index, tool)
        for index, tool in enumerate(request.tools)
        if request.tool_choice.mode != "none" and (allowed is None or tool.name in allowed)
    ]
    if not asked:
        return Functions({})
    text = msgspec.json.encode([(tool.name, tool.parameters) for _, tool in asked]).decode()
    return await schema_cache.of(text, None, partial(_checked, asked, text, control_tokens))


def _checked(
    asked: Sequence[tuple[int, Tool]], text: str, control_tokens: Iterable[str]
) -> Functions:
    check_size(text, param="tools")
    tools: dict[str, Schema] = {}
    arguments: dict[str, CheckedSchema] = {}
    ignored: list[str] = []
    watched = False
    for index, tool in asked:
        param = f"tools[{index}].function.parameters"
        parameters, siblings = without_siblings(tool.parameters)
        try:
            schema = closed_schema(_of_objects(parameters, param))
            prepared = prepare(schema, param=param)
        except InvalidRequest as refused:
            raise of_function(tool.name, refused) from None
        tools[tool.name] = without_endless(dict(closed_schema(anchored(schema))))
        ignored += (f"{param} {ignored_sibling(key)}" for key in siblings)
        ignored += prepared.ignored
        watched = watched or prepared.watched
        arguments[tool.name] = CheckedSchema(prepared.rules)
    spell = spells(json.dumps(tools, ensure_ascii=False), control_tokens)
    return Functions(tools, text, spell, arguments, watched, tuple(ignored))


def _of_objects(parameters: Schema, param: str) -> Schema:
    """Return the parameters without other types than ``object``; raise where that is none."""
    declared = parameters.get("type", "object")
    kinds = declared if isinstance(declared, list) else [declared]
    if "object" not in kinds and all(isinstance(kind, str) for kind in kinds):
        written = json.dumps(declared)
        reason = f'arguments are a JSON object, so `type` must be "object", not {written[:100]}.'
        raise unsupported(param, reason, "#/type")
    rest = {key: value for key, value in parameters.items() if key != "nullable"}
    return {**rest, "type": "object"} if "object" in kinds else rest
