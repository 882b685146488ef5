"""Prompts change only with what the model reads, so that the engine's cache finds them again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from casekit import each_of
from chatkit import Unchecked
from formatkit import TOOLS, Call, write_calls, write_reasoning
from grammarkit import vocabularies
from msgspec import structs

from causerie.chat.chat import TextChat, TextChatOptions
from causerie.chat.constraint import CallPlan, compose
from causerie.chat.formats.registry import FORMATS, by_name
from causerie.chat.plan import Plan, make_plan
from causerie.engines.registry import FakeEngine
from causerie.protocol.request import (
    ChatRequest,
    JsonObject,
    JsonSchema,
    Message,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
)

_OWN = sorted((Path(__file__).parents[1] / "templates").glob("*.jinja"))
_FOLDER = os.environ.get("CAUSERIE_TEMPLATES", "")
_REAL = sorted(Path(_FOLDER).glob("*.jinja")) if _FOLDER else []
_CALLING = [form.name for form in FORMATS]

_TOOLS = tuple(Tool(name, schema, name) for name, schema in TOOLS.items())
_CONVERSATION = (
    Message("system", "You are kind."),
    Message("user", "How is it in Paris?"),
    Message(
        "assistant", "", tool_calls=(ToolCall("abcdefgh1", "get_weather", '{"city":"Paris"}'),)
    ),
    Message("tool", "21 degrees", tool_call_id="abcdefgh1"),
)
_CHANGES: tuple[dict[str, Any], ...] = (
    {"tool_choice": ToolChoice("none")},
    {"tool_choice": ToolChoice("required")},
    {"tool_choice": ToolChoice("required", ("now",))},
    {"tool_choice": ToolChoice("auto", ("now",))},
    {"parallel_tool_calls": False},
    {"parallel_tool_calls": True},
    {"tool_choice": ToolChoice("none"), "output": JsonObject()},
    {"output": JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}})},
    {"max_tokens": 17},
)


async def plans(path: Path, changes: Sequence[Mapping[str, Any]]) -> list[Plan]:
    """The plans of one conversation on a template, one for each change."""
    form, engine = path.stem if path in _OWN else None, FakeEngine("m")
    chat = TextChat(engine, Unchecked(), TextChatOptions(form, path.read_text()))
    model = chat.model(await engine.facts())
    request = ChatRequest("m", _CONVERSATION, tools=_TOOLS)
    asked = [structs.replace(request, **change) for change in changes]
    return [await make_plan(each, model, None, {}) for each in asked]


@each_of("path", [*_OWN, *_REAL], ids=lambda path: path.stem, every=3)
async def test_what_the_model_does_not_read_leaves_the_prompt_alone(path: Path) -> None:
    usual, *changed = await plans(path, [{}, *_CHANGES])
    for change, plan in zip(_CHANGES, changed, strict=True):
        assert plan.rendered == usual.rendered, change


@each_of("path", [*_OWN, *_REAL], ids=lambda path: path.stem, every=3)
async def test_an_effort_that_the_template_does_not_show_leaves_it_alone(path: Path) -> None:
    low, high = await plans(
        path,
        [{"thinking": Thinking(enabled=True, effort=effort)} for effort in ("low", "high")],
    )
    switch = low.form.thinking
    if switch is None or not switch.effort or switch.effort not in path.read_text():
        assert low.rendered == high.rendered


@each_of("name", _CALLING)
def test_no_call_passes_where_calls_are_forbidden(name: str) -> None:
    form = by_name(name)
    plan = CallPlan({}, required=False, parallel=False, forbidden=True)
    call_id = "abcdefgh1" + ("0" if name == "solar-open" else "")
    section = form.calls.lead + write_calls(
        form.calls, [Call("get_weather", {"city": "Paris"}, call_id)]
    )
    for control, vocabulary in vocabularies(form):
        grammar = compose(form, control, reasoning="possible", calls=plan, answer=None)
        assert grammar is not None
        said = f"{form.answer_open}Hello <b>you</b> [1], {{x}}.{form.answer_close}"
        assert vocabulary.refused_at(grammar, said) is None
        thought = write_reasoning(form.reasoning, "Hm.")
        assert vocabulary.refused_at(grammar, thought + said) is None
        if not form.calls.at_start:
            assert vocabulary.refused_at(grammar, section) is not None
            assert vocabulary.refused_at(grammar, "So: " + section) is not None
