"""The functions that a model may call, checked to be enforceable."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from causerie.chat.encoding import spells
from causerie.chat.recall import Recall
from causerie.chat.schema import prepare
from causerie.chat.schema.refusal import of_function
from causerie.chat.segments.base import Schema
from causerie.chat.segments.choices import anchored, closed_schema
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Tool


@dataclass(frozen=True, slots=True)
class Functions:
    """Closed schemas by name; ``text`` is all of them as they were sent, as JSON.

    ``spell`` says that a constraint of them may hold the text of a control token.
    """

    tools: Mapping[str, Schema]
    text: str = ""
    spell: bool = False


async def callable_functions(
    request: ChatRequest, control_tokens: Collection[str], recall: Recall
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
    return await recall.of(text, None, partial(_checked, asked, text, control_tokens))


def _checked(
    asked: Sequence[tuple[int, Tool]], text: str, control_tokens: Iterable[str]
) -> Functions:
    tools: dict[str, Schema] = {}
    for index, tool in asked:
        schema = closed_schema(tool.parameters)
        try:
            prepare(schema, param=f"tools[{index}].function.parameters")
        except InvalidRequest as refused:
            raise of_function(tool.name, refused) from None
        tools[tool.name] = closed_schema(anchored(schema))
    return Functions(tools, text, spells(json.dumps(tools, ensure_ascii=False), control_tokens))
