"""The functions that a model may call, checked to be enforceable.

An agent sends the same ones with every turn, and to check them and to write their
grammar takes milliseconds in which nobody else's tokens get on. So what was made
of them is remembered.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from causerie.chat.encoding import spells
from causerie.chat.schema import prepare
from causerie.chat.schema.refusal import of_function
from causerie.chat.segments.base import Schema
from causerie.chat.segments.choices import anchored, closed_schema
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Tool

_MOST = 1_000_000  # characters of schemas; of grammars there are some five times as many
_LONG = 10_000  # characters of schemas; more take so long that they go to a thread

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Functions:
    """Closed schemas by name; ``text`` is all of them as they were sent, as JSON.

    ``spell`` says that a constraint of them may hold the text of a control token.
    """

    tools: Mapping[str, Schema]
    text: str = ""
    spell: bool = False


@dataclass(slots=True)
class Recall:
    """What was made of functions for one model; the oldest are forgotten first."""

    most: int = _MOST
    _known: OrderedDict[Hashable, tuple[object, int]] = field(default_factory=OrderedDict)
    _characters: int = 0

    async def of(self, text: str, what: Hashable, make: Callable[[], _T]) -> _T:
        """What ``make`` makes of ``text`` in this way; what it raises is not remembered."""
        key = text, what
        if (found := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return cast(_T, found[0])
        made = make() if len(text) <= _LONG else await asyncio.to_thread(make)
        if key not in self._known:
            self._characters += len(text)
            self._known[key] = made, len(text)
        while self._characters > self.most:
            _, (_, characters) = self._known.popitem(last=False)
            self._characters -= characters
        return made


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
    text = json.dumps([(tool.name, tool.parameters) for _, tool in asked])
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
