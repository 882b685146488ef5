"""A model's own output comes back in its prompt as its format declares it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from casekit import each_of
from formatkit import TOOLS, Call, write_calls, write_reasoning

from causerie.chat.formats.format import ModelFormat
from causerie.chat.formats.registry import FORMATS, by_name, detect
from causerie.chat.prompt import before_call, render
from causerie.chat.template import ChatTemplate
from causerie.errors import InvalidRequest
from causerie.protocol.parameters import ParsingRules
from causerie.protocol.request import ChatRequest, Message, Tool, ToolCall
from causerie.shapes.chat_completions.reader import parse

OWN = Path(__file__).parents[1] / "templates"
REAL = os.environ.get("CAUSERIE_TEMPLATES", "")
MADE = (
    Call(
        "get_weather",
        {"city": 'Pa"ris é', "days": 3, "hot": True, "tags": ["a", "b"]},
        "abcdefgh1",
    ),
    Call("time", {"zone": "UTC"}, "abcdefgh2"),
)

# Real templates that write calls differently from what their models write, and how.
CALLS_DIFFER = {
    "Apriel-1.6-15b-Thinker-fixed": "numbers the calls of the past, which it does not ask for",
    "unsloth-Apriel-1.5": "numbers the calls of the past, which it does not ask for",
    "LFM2.5-8B-A1B": "single quotes, without escapes",
    "fireworks-ai-llama-3-firefunction-v2": "wants variables that only its service has",
}
# Those that leave the reasoning of the past out, or show it only alongside calls.
NO_REASONING = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "only alongside calls",
    "Kimi-K2-Thinking": "only alongside calls",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "cut at the closing tag",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "cut at the closing tag",
    "deepseek-ai-DeepSeek-V3.1": "cut at the closing tag",
    "fireworks-ai-llama-3-firefunction-v2": "wants variables that only its service has",
    "google-gemma-4-31B-it": "only alongside calls",
    "google-gemma-4-31B-it-interleaved": "only alongside calls",
    "llama-cpp-deepseek-r1": "cut at the closing tag",
    "llama-cpp-rwkv-world": "cut at the closing tag",
    "muse-glimmer": "with a blank before the recipient",
    "ibm-granite-granite-3.3-2B-Instruct": "without the tag that the answer begins with",
}
# The same of the templates here.
OWN_NO_REASONING = {
    "deepseek-r1",
    "deepseek-r1-switched",
    "deepseek-v3.1",
    "generic-thinking",
    "granite-3.3",
    "hunyuan-a13b",
    "muse",
    "nemotron-nano-2",
    "qwq",
    "qwq-switched",
}


@cache
def _template(path: Path) -> ChatTemplate:
    return ChatTemplate(path.read_text(), bos_token="<BOS>", eos_token="<EOS>")


def _rendered(
    template: ChatTemplate,
    form: ModelFormat,
    answer: Message,
    results: Sequence[Message],
    tools: bool,
) -> str:
    request = ChatRequest(
        model="m",
        messages=(Message("user", "USER"), answer, *results),
        tools=tuple(Tool(name, schema, name) for name, schema in TOOLS.items()) if tools else (),
        add_generation_prompt=bool(results),
    )
    return render(template, form, request, thinking_on=True, effort=None).text


def _calls_in_prompt(
    template: ChatTemplate, form: ModelFormat, content: str | None = None
) -> tuple[str, str]:
    """Return the declared text of calls of the past, and the prompt."""
    made = MADE if form.calls.parallel else MADE[:1]
    calls = tuple(
        ToolCall(call.id, call.name, json.dumps(call.arguments, ensure_ascii=False))
        for call in made
    )
    answer = Message("assistant", content, tool_calls=calls, reasoning_content="Hm, so.")
    results = [Message("tool", "RESULT", tool_call_id=call.id) for call in made]
    return write_calls(form.calls, made), _rendered(template, form, answer, results, True)


def _reasoning_in_prompt(template: ChatTemplate, form: ModelFormat) -> tuple[str, str]:
    """Return the declared text of reasoning and answer of the past, and the prompt."""
    said = write_reasoning(form.reasoning, "Hm, so.")
    said += form.answer_open + form.answer_space + "ANSWER"
    answer = Message("assistant", "ANSWER", reasoning_content="Hm, so.")
    return said, _rendered(template, form, answer, [], False)


@each_of("name", [form.name for form in FORMATS], every=3)
def test_own_template_shows_calls_as_declared(name: str) -> None:
    declared, prompt = _calls_in_prompt(_template(OWN / f"{name}.jinja"), by_name(name))
    assert declared in prompt


@each_of("name", [form.name for form in FORMATS], every=3)
def test_no_call_is_lost_beside_text(name: str) -> None:
    template = _template(OWN / f"{name}.jinja")
    declared, prompt = _calls_in_prompt(template, by_name(name), "I look.")
    assert declared in prompt


@each_of("name", [f.name for f in FORMATS if f.name not in OWN_NO_REASONING], every=3)
def test_own_template_shows_reasoning_as_declared(name: str) -> None:
    declared, prompt = _reasoning_in_prompt(_template(OWN / f"{name}.jinja"), by_name(name))
    assert declared in prompt


@each_of("name", [form.name for form in FORMATS], every=3)
def test_what_stands_between_a_text_and_its_call_is_known(name: str) -> None:
    template, form = _template(OWN / f"{name}.jinja"), by_name(name)
    declared, prompt = _calls_in_prompt(template, form, "I look.")
    assert f"I look.{before_call(template, form)}{declared}" in prompt


@pytest.mark.parametrize("thought", ["", "Hm, so."])
@pytest.mark.parametrize("name", ["gpt-oss", "llm-jp"])
def test_what_is_said_before_a_call_is_a_message_of_its_own(name: str, thought: str) -> None:
    """No answer, behind which gpt-oss is no longer shown what it thought before earlier calls."""
    form = by_name(name)
    call = ToolCall("abcdefgh1", "time", '{"zone": "UTC"}')
    answer = Message("assistant", "I look.", tool_calls=(call,), reasoning_content=thought)
    results = [Message("tool", "RESULT", tool_call_id=call.id)]
    prompt = _rendered(_template(OWN / f"{name}.jinja"), form, answer, results, True)
    said = write_reasoning(form.reasoning, thought) if thought else ""
    said += "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant "
    assert "<|start|>assistant" + said + write_calls(form.calls, MADE[1:]) in prompt


def _shows_both(template: ChatTemplate, form: ModelFormat, said: str | None, thought: str) -> bool:
    """Return true if two calls of one message are in the prompt, each before its result."""
    calls = (ToolCall("abcdefgh1", "time", '{"zone": "UTC"}'),
             ToolCall("abcdefgh2", "get_weather", '{"city": "Oslo"}'))  # fmt: skip
    answer = Message("assistant", said, tool_calls=calls, reasoning_content=thought)
    results = [
        Message("tool", "RAIN", tool_call_id="abcdefgh2"),
        Message("tool", "NOON", tool_call_id="abcdefgh1"),
    ]
    text = _rendered(template, form, answer, results, True)
    return 0 < text.find("UTC") < text.find("NOON") and 0 < text.find("Oslo") < text.find("RAIN")


@each_of("thought", ["", "Hm, so."])
@each_of("said", [None, "I look."])
@each_of("name", [form.name for form in FORMATS], every=3)
def test_no_call_is_lost_beside_another(name: str, said: str | None, thought: str) -> None:
    assert _shows_both(_template(OWN / f"{name}.jinja"), by_name(name), said, thought)


@pytest.mark.parametrize("thought", ["", "Hm, so."])
@pytest.mark.parametrize("said", [None, "I look."])
def test_real_templates_lose_no_call_beside_another(said: str | None, thought: str) -> None:
    lost = set()
    for path in _real():
        template = _template(path)
        try:
            shown = _shows_both(template, detect(template.source), said, thought)
        except InvalidRequest:
            shown = False
        if not shown:
            lost.add(path.stem)
    assert lost == {"fireworks-ai-llama-3-firefunction-v2"}


def _in_order(template: ChatTemplate, form: ModelFormat, thought: str) -> bool:
    """Return true if the text before a call is in the prompt, before the call."""
    call = ToolCall("abcdefgh1", "get_weather", '{"city": "Oslo"}')
    answer = Message("assistant", "I look.", tool_calls=(call,), reasoning_content=thought)
    results = [Message("tool", "RAIN", tool_call_id=call.id)]
    text = _rendered(template, form, answer, results, True)
    return 0 < text.rfind("USER") < text.find("I look.") < text.rfind("Oslo") < text.rfind("RAIN")


@each_of("thought", ["", "Hm, so."])
@each_of("name", [form.name for form in FORMATS], every=3)
def test_what_was_said_before_a_call_stays_before_it(name: str, thought: str) -> None:
    assert _in_order(_template(OWN / f"{name}.jinja"), by_name(name), thought)


@pytest.mark.parametrize("thought", ["", "Hm, so."])
def test_real_templates_keep_what_was_said_before_a_call(thought: str) -> None:
    lost = set()
    for path in _real():
        template = _template(path)
        try:
            shown = _in_order(template, detect(template.source), thought)
        except InvalidRequest:
            shown = False
        if not shown:
            lost.add(path.stem)
    assert lost == {"fireworks-ai-llama-3-firefunction-v2"}


def test_real_templates_take_whatever_order_clients_send() -> None:
    call = ToolCall("abcdefgh1", "time", '{"zone": "UTC"}')
    words = "RULES", "USER", "UTC", "NOON", "STOP", "FOUND", "AGAIN"
    rules, user, _, noon, stop, found, again = words
    messages = [
        Message("system", rules), Message("user", user),
        Message("assistant", None, tool_calls=(call,)), Message("tool", noon, tool_call_id=call.id),
        Message("user", stop), Message("assistant", ""), Message("user", found),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", again, tool_call_id=call.id),
    ]  # fmt: skip
    lost = set()
    for path in _real():
        template = _template(path)
        request = ChatRequest(
            model="m", messages=tuple(messages), tools=(Tool("time", TOOLS["time"], ""),)
        )
        try:
            text = render(
                template, detect(template.source), request, thinking_on=True, effort=None
            ).text
        except InvalidRequest:
            text = ""
        if not all(word in text for word in words):
            lost.add(path.stem)
    assert lost == {"fireworks-ai-llama-3-firefunction-v2"}


@pytest.mark.parametrize("answered", [False, True])
def test_real_templates_show_a_result_that_comes_late(answered: bool) -> None:
    """A user who does not wait for what a call takes; the reader moves the result to the call."""
    function = {"name": "time", "arguments": '{"zone": "UTC"}'}
    call = {"id": "abcdefgh1", "type": "function", "function": function}
    messages = [
        {"role": "user", "content": "USER"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "user", "content": "HURRY"},
        *([{"role": "assistant", "content": "SOON"}] if answered else []),
        {"role": "tool", "content": "NOON", "tool_call_id": "abcdefgh1"},
        {"role": "user", "content": "THANKS"},
    ]
    tools = [{"type": "function", "function": {"name": "time", "parameters": TOOLS["time"]}}]
    body = {"model": "m", "messages": messages, "tools": tools}
    request = parse(json.dumps(body).encode(), ParsingRules())
    lost = set()
    for path in _real():
        template = _template(path)
        form = detect(template.source)
        try:
            text = render(template, form, request, thinking_on=None, effort=None).text
        except InvalidRequest:
            text = ""
        if not 0 < text.rfind("UTC") < text.find("NOON") or "HURRY" not in text:
            lost.add(path.stem)
    assert lost == {"fireworks-ai-llama-3-firefunction-v2"}


@pytest.mark.parametrize("tools", [False, True])
def test_real_templates_take_roles_out_of_turn(tools: bool) -> None:
    call = ToolCall("abcdefgh1", "time", '{"zone": "UTC"}')
    said = "ONE", "TWO", "UTC", "NOON", "THREE", "FOUR"
    one, two, _, noon, three, four = (Message("assistant", word) for word in said)
    result = Message("tool", noon.content, tool_call_id=call.id)
    called = Message("assistant", None, tool_calls=(call,))
    user = Message("user", "USER")
    lost = set()
    for path in _real():
        template = _template(path)
        form = detect(template.source)
        for messages in (
            (one, two, called, result, three, four, user),
            (user, one, two, called, result, three, four),
            (called, result, user, one, two, user, user, three, four),
        ):
            offered = (Tool("time", TOOLS["time"], ""),) if tools else ()
            request = ChatRequest(model="m", messages=messages, tools=offered)
            try:
                text = render(template, form, request, thinking_on=True, effort=None).text
            except InvalidRequest:
                text = ""
            if not all(word in text for word in said):
                lost.add(path.stem)
    assert lost == {"fireworks-ai-llama-3-firefunction-v2"}


def _real() -> list[Path]:
    if not REAL or not Path(REAL).is_dir():
        pytest.skip("CAUSERIE_TEMPLATES does not name a folder of chat templates")
    return sorted(Path(REAL).glob("*.jinja"))


@pytest.mark.parametrize("content", [None, "I look."])
def test_real_templates_show_calls_as_declared(content: str | None) -> None:
    differ = set()
    for path in _real():
        template = _template(path)
        try:
            declared, prompt = _calls_in_prompt(template, detect(template.source), content)
        except InvalidRequest:
            declared, prompt = "refused", ""
        if declared not in prompt:
            differ.add(path.stem)
    assert differ == CALLS_DIFFER.keys()


def test_real_templates_show_reasoning_as_declared() -> None:
    differ = set()
    for path in _real():
        template = _template(path)
        try:
            declared, prompt = _reasoning_in_prompt(template, detect(template.source))
        except InvalidRequest:
            declared, prompt = "refused", ""
        if declared not in prompt:
            differ.add(path.stem)
    assert differ == NO_REASONING.keys()


# Real templates with which a second turn does not go on from the first, and why: most leave
# earlier reasoning out, as their models were trained, and have no argument to keep it.
FORGETS = dict.fromkeys(
    (
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "GLM-4.6",
        "Kimi-K2-Thinking",
        "MiniMax-M2",
        "Qwen-Qwen3-0.6B",
        "Qwen3.5-4B",
        "Reka-Edge",
        "StepFun3.5-Flash",
        "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V3.2",
        "google-gemma-4-31B-it",
        "google-gemma-4-31B-it-interleaved",
        "openai-gpt-oss-120b",
        "openbmb-MiniCPM5-1B",
        "upstage-Solar-Open-100B",
    ),
    "of answers, once another question comes",
) | {
    "ibm-granite-granite-3.3-2B-Instruct": "without the tag that the answer begins with",
    "mistralai-Mistral-Nemo-Instruct-2407": "the last question has the system message",
}
FORGETS_ALONGSIDE_CALLS = {
    "LFM2.5-8B-A1B": "single quotes in calls",
    "unsloth-Apriel-1.5": "numbers the calls of the past",
}
FORGETS_EVERYWHERE = dict.fromkeys(
    (
        "Apriel-1.6-15b-Thinker-fixed",
        "NVIDIA-Nemotron-Nano-v2",
        "Qwen-QwQ-32B",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        "llama-cpp-deepseek-r1",
        "llama-cpp-rwkv-world",
        "llm-jp-llm-jp-4.1-8b-thinking",
    ),
    "all of it",
) | {
    "CohereForAI-c4ai-command-r-plus-tool_use": "ends with the instructions",
    "fireworks-ai-llama-3-firefunction-v2": "wants variables that only its service has",
}
# The same of the templates here.
OWN_FORGETS = {"granite-3.3": False, "hunyuan-a13b": False}
OWN_FORGETS_EVERYWHERE = {
    "deepseek-r1",
    "deepseek-r1-switched",
    "deepseek-v3.1",
    "generic-thinking",
    "nemotron-nano-2",
    "qwq",
    "qwq-switched",
}


@pytest.mark.parametrize(
    ("name", "call", "written"),
    [
        ("hermes", "{{- '<tool_call>", "{{- '\\n<tool_call>"),
        (
            "llama-3",
            "{{- message.content or '' }}",
            "{%- if not message.tool_calls %}{{- message.content }}{%- endif %}",
        ),
    ],
)
def test_thinking_that_was_asked_for_stays_right_before_its_call(
    name: str, call: str, written: str
) -> None:
    """Also where the template breaks the line before a call, or shows the call alone."""
    source = (OWN / f"{name}.jinja").read_text()
    assert call in source
    source = source.replace(call, written)
    assert _asked_thinking_stays(ChatTemplate(source, bos_token="", eos_token=""), by_name(name))


def test_real_templates_keep_thinking_that_was_asked_for_right_before_its_call() -> None:
    templates = {path.stem: _template(path) for path in _real()}
    forms = {name: detect(template.source) for name, template in templates.items()}
    moved = {
        name
        for name, template in templates.items()
        if forms[name].thinking is None
        and name != "fireworks-ai-llama-3-firefunction-v2"
        and not _asked_thinking_stays(template, forms[name])
    }
    trims, quotes = "CohereForAI-c4ai-command-r-plus-tool_use", "LFM2.5-8B-A1B"
    assert moved == {trims, quotes}


def _asked_thinking_stays(template: ChatTemplate, form: ModelFormat) -> bool:
    call = ToolCall(MADE[1].id, MADE[1].name, json.dumps(MADE[1].arguments))
    answer = Message("assistant", None, tool_calls=(call,), reasoning_content="Hm, so.")
    text = _rendered(template, form, answer, [Message("tool", "R", tool_call_id=call.id)], True)
    made = form.calls.lead + write_calls(form.calls, MADE[1:])
    return write_reasoning(form.reasoning, "Hm, so.") + made in text


def _goes_on(template: ChatTemplate, form: ModelFormat, *, called: bool) -> bool:
    """Return true if the prompt of a second turn is that of the first, the reply, and more.

    White space between reasoning and what follows is the model's affair.
    """
    user, thought = Message("user", "USER"), "Hm, so."
    tools = tuple(Tool(name, schema, name) for name, schema in TOOLS.items()) if called else ()

    def prompt(*messages: Message) -> str:
        request = ChatRequest(model="m", messages=messages, tools=tools)
        return render(template, form, request, thinking_on=True, effort=None).text

    first = prompt(user)
    reasoning = write_reasoning(form.reasoning, thought)
    opened = first.rstrip().endswith(form.reasoning.open)
    said = first.rstrip() + reasoning[len(form.reasoning.open) if opened else 0 :]
    if called:
        said += form.calls.lead + write_calls(form.calls, MADE[1:])
        call = ToolCall(MADE[1].id, MADE[1].name, json.dumps(MADE[1].arguments))
        answer = Message("assistant", None, tool_calls=(call,), reasoning_content=thought)
        second = prompt(user, answer, Message("tool", "RESULT", tool_call_id=call.id))
    else:
        said += form.answer_open + "ANSWER"
        answer = Message("assistant", "ANSWER", reasoning_content=thought)
        second = prompt(user, answer, user)
    return "".join(second.split()).startswith("".join(said.split()))


@each_of("called", [False, True])
@each_of("name", [f.name for f in FORMATS if f.name not in OWN_FORGETS_EVERYWHERE], every=3)
def test_a_second_turn_goes_on_from_the_first(name: str, called: bool) -> None:
    goes_on = _goes_on(_template(OWN / f"{name}.jinja"), by_name(name), called=called)
    assert goes_on is (OWN_FORGETS.get(name) is not called)


@pytest.mark.parametrize("called", [False, True])
def test_a_second_turn_of_a_real_template_goes_on_from_the_first(called: bool) -> None:
    forgets = set()
    for path in _real():
        template = _template(path)
        try:
            kept = _goes_on(template, detect(template.source), called=called)
        except InvalidRequest:
            kept = False
        if not kept:
            forgets.add(path.stem)
    sometimes = FORGETS_ALONGSIDE_CALLS if called else FORGETS
    assert forgets == FORGETS_EVERYWHERE.keys() | sometimes.keys()
