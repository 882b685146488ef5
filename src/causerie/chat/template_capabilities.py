"""Capabilities of one chat template, determined by rendering small conversations with it.

Templates differ in what they refuse or silently drop, and reading one does not reveal that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

from causerie.chat.taint import authored, read_arguments
from causerie.chat.template import ChatTemplate
from causerie.errors import InvalidRequest

Entry = dict[str, object]
Shape = Literal["object", "text"]

_ONE, _TWO, _THREE, _FOUR = "Ahorn one", "Birke two", "Cedar three", "Dattel four"
_SHORT_ID, _LONG_ID = "abcdefgh", "call_0123456789abcdefghi"


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    # The value that it expects without tools: ``None`` or an empty list.
    empty_tools: tuple[Mapping[str, object], ...] | None = None
    parts: bool = False  # it shows content only in parts
    system: bool = True  # it shows a system message
    systems: bool = True  # it shows several at the start
    system_later: bool = True  # it shows one in the middle
    system_alone: bool = True  # it shows one without messages after it
    system_kept: bool = True  # in a conversation that does not end with a user's message, too
    repeats: bool = True  # it shows two messages of a user in a row: roles need not alternate
    interrupts: bool = True  # it shows one directly after a result
    opens: bool = True  # it shows an answer as the first message
    unasked: bool = True  # it shows one in a conversation without a user
    blank: str = ""  # the text that it accepts for an answer without text
    tools: bool = True  # it shows tools
    undescribed: bool = True  # it shows tools without descriptions
    calls: bool = True  # it shows earlier calls and their results
    several: bool = True  # it shows those of a message with more than one
    arguments: Shape = "object"  # the shape that it expects of a call's arguments
    no_content: str | None = ""  # what it expects for missing content
    short_ids: bool = False  # call ids must be nine letters or digits
    reasoning: bool = True  # it shows earlier reasoning somewhere
    calls_alongside_text: bool = True  # it shows a call in a message with text
    text_before_calls: bool = True  # it shows this text too, before the call
    gap: str = ""  # the white space between them
    told: bool = True  # it shows a result whose call is described in text
    together: bool = True  # it accepts text, reasoning and a call in one message
    marked: bool = True  # an answer may begin with the markers of reasoning


@lru_cache(maxsize=64)
def capabilities_of(
    template: ChatTemplate,
    arguments: Shape = "object",
    reasoning_keys: tuple[str, ...] = ("reasoning_content",),
    marks: tuple[str, str] = ("<think>", "</think>"),
    thinking: tuple[tuple[str, object], ...] = (),
) -> TemplateCapabilities:
    """Return what a template can show; the ``arguments`` shape of its format is tried first.

    ``marks`` enclose reasoning; with the arguments ``thinking`` the template shows it, if ever.
    """
    probe, thought = _Probe(template, thinking), dict.fromkeys(reasoning_keys, _THREE)
    return _probe_capabilities(probe, arguments, thought, marks)


def _probe_capabilities(
    probe: _Probe, arguments_shape: Shape, reasoning: dict[str, str], marks: tuple[str, str]
) -> TemplateCapabilities:
    user, answer = _build_message("user", _ONE), _build_message("assistant", _TWO)
    tools = [_build_sample_tool("")]
    first, second = _build_message("system", _TWO), _build_message("system", _THREE)
    shape = _find_call_traits(probe, arguments_shape)
    kind, nothing, short = shape or (arguments_shape, "", False)
    call = _build_exchange(kind, nothing, short)
    call[1] |= reasoning
    mixed = _build_exchange(kind, _FOUR, short)
    both = _build_exchange(kind, nothing, short, _TWO, _FOUR)
    told = [user, _build_message("assistant", _FOUR), mixed[2], answer, user]
    behind = (probe.text(mixed, tools) or "").partition(_FOUR)[2]
    return TemplateCapabilities(
        empty_tools=probe.empty,
        parts=probe.parts,
        system=probe.shows([first, user], _TWO, _ONE),
        systems=probe.shows([first, second, user], _TWO, _THREE, _ONE),
        system_later=probe.shows([user, answer, second, user], _ONE, _TWO, _THREE, _ONE),
        system_alone=probe.shows([first], _TWO),
        system_kept=probe.shows([_build_message("system", _FOUR), user, answer], _FOUR, _ONE, _TWO),
        repeats=probe.shows([user, _build_message("user", _TWO)], _ONE, _TWO),
        interrupts=probe.text([*call, user], tools) is not None,
        opens=_may_conversation_begin_with_answer(probe, [answer, user], shape),
        unasked=probe.shows([answer], _TWO),
        blank="" if probe.text([user, _build_message("assistant", ""), user]) is not None else " ",
        tools=probe.shows([user], "probe_weather", tools=[_build_sample_tool(_THREE)]),
        undescribed=probe.shows([user], "probe_weather", tools=[_build_sample_tool(None)]),
        calls=shape is not None,
        several=probe.shows(both, _TWO, _FOUR, _THREE, tools=tools),
        arguments=kind,
        no_content=nothing,
        short_ids=short,
        reasoning=probe.shows([user, {**answer, **reasoning}, user], _THREE, _TWO)
        or probe.shows(call, _THREE, "probe_weather", tools=tools),
        calls_alongside_text=probe.shows(mixed, _ONE, _TWO, _THREE, tools=tools),
        text_before_calls=probe.shows(mixed, _ONE, _FOUR, _TWO, _THREE, tools=tools),
        gap=behind[: len(behind) - len(behind.lstrip())],
        told=probe.shows(told, _FOUR, _THREE, _TWO, tools=tools),
        together=probe.text([mixed[0], mixed[1] | reasoning, mixed[2]], tools) is not None,
        marked=probe.text([user, _build_message("assistant", _THREE.join(marks) + _TWO), user])
        is not None,
    )


@lru_cache(maxsize=128)
def leading_of(
    template: ChatTemplate,
    kwargs: tuple[tuple[str, object], ...] = (),
    calling: TemplateCapabilities | None = None,
) -> str | None:
    """Return the white space that a template writes between a prompt's end and an answer or call.

    It is that of a call with the traits ``calling``, else of an answer or its reasoning, and
    ``None`` if unknown."""
    user, probe = _build_message("user", _ONE), _Probe(template, kwargs)
    told, tools = [user, _build_message("assistant", _TWO), user], None
    if calling:
        told = _build_exchange(calling.arguments, calling.no_content, calling.short_ids)
        tools = [_build_sample_tool("")]
    prompt, whole = probe.text([user], tools), probe.text(told, tools)
    if prompt is None or whole is None or not whole.startswith(prompt):
        return None
    answer = whole.removeprefix(prompt)
    return answer[: len(answer) - len(answer.lstrip())]


class _Probe:
    """Renders with one template, in the shape that it takes for a single message of a user."""

    def __init__(self, template: ChatTemplate, kwargs: Iterable[tuple[str, object]]) -> None:
        self._template, self._kwargs, user = template, dict(kwargs), _build_message("user", _ONE)
        self.empty: tuple[Mapping[str, object], ...] | None = None
        self.parts = False
        if self.text([user]) is None:
            self.empty = ()
            self.empty = None if self.text([user]) is None else ()
        if not self.shows([user], _ONE):
            self.parts = True
            self.parts = self.shows([user], _ONE)

    def text(self, messages: Sequence[Entry], tools: Sequence[Entry] | None = None) -> str | None:
        shown = [in_parts(entry) if self.parts else entry for entry in messages]
        offered = self.empty if tools is None else tools
        try:
            return self._template.render(shown, tools=offered, kwargs=self._kwargs).text
        except InvalidRequest:
            return None

    def shows(
        self, messages: Sequence[Entry], *words: str, tools: Sequence[Entry] | None = None
    ) -> bool:
        text, at = self.text(messages, tools), 0
        for word in words:
            at = (text or "").find(word, at) + 1
            if not at:
                return False
        return True


def _may_conversation_begin_with_answer(
    probe: _Probe, messages: Sequence[Entry], shape: tuple[Shape, str | None, bool] | None
) -> bool:
    opens = probe.shows(messages, _TWO, _ONE)
    if shape is None or not opens:
        return opens
    called = [*_build_exchange(*shape)[1:], _build_message("assistant", _FOUR), messages[-1]]
    return probe.shows(called, _TWO, _THREE, _FOUR, _ONE, tools=[_build_sample_tool("")])


def _find_call_traits(probe: _Probe, preferred: Shape) -> tuple[Shape, str | None, bool] | None:
    shapes: tuple[Shape, Shape] = ("text", "object") if preferred == "text" else ("object", "text")
    for short, kind, nothing in product((False, True), shapes, ("", None)):
        text = probe.text(_build_exchange(kind, nothing, short), [_build_sample_tool(_THREE)]) or ""
        called = text.rfind("probe_weather", 0, text.find(_TWO) + 1)
        if called >= 0 and '\\"' not in text and text.find(_THREE, called) >= 0:
            return kind, nothing, short
    return None


def _build_exchange(shape: str, content: str | None, short_ids: bool, *places: str) -> list[Entry]:
    calls: list[Entry] = []
    for number, place in enumerate(places or (_TWO,), 1):
        text = f'{{"place": "{place}"}}'
        arguments = read_arguments(text) if shape == "object" else text
        call_id = f"{_SHORT_ID if short_ids else _LONG_ID}{number}"
        function = {"name": "probe_weather", "arguments": arguments}
        calls.append({"id": call_id, "type": "function", "function": function})
    results: list[Entry] = [
        {"role": "tool", "content": _THREE, "tool_call_id": call["id"], "name": "probe_weather"}
        for call in calls
    ]
    answer: Entry = {"role": "assistant", "content": content, "tool_calls": calls}
    return [_build_message("user", _ONE), answer, *results]


def _build_sample_tool(description: str | None) -> Entry:
    place = {"type": "string"} | ({} if description is None else {"description": "where"})
    schema = {"type": "object", "properties": {"place": place}, "required": ["place"]}
    function: Entry = {"name": "probe_weather", "parameters": schema}
    if description is not None:
        function["description"] = description
    return {"type": "function", "function": function}


def _build_message(role: str, text: str) -> Entry:
    return {"role": role, "content": text}


def in_parts(entry: Entry) -> Entry:
    """Return the message with its text as the only part of a list."""
    text = entry["content"]
    if text is None:
        return entry
    return {**entry, "content": [{"type": authored("text"), "text": text}]}
