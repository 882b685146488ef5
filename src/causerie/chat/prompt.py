"""Renders a request as a prompt: messages, tools and wishes, as the model's template shows them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct, structs

from causerie.chat import history, thinking
from causerie.chat.formats.format import Literal, ModelFormat, Name, ThinkingSwitch
from causerie.chat.history import content_text
from causerie.chat.taint import FINAL, Traced, authored, joined, origin_of
from causerie.chat.template import ChatTemplate, Rendered
from causerie.chat.template_capabilities import (
    Entry,
    TemplateCapabilities,
    capabilities_of,
    in_parts,
    leading_of,
)
from causerie.errors import InvalidRequest
from causerie.protocol.request import ChatRequest, Message, Tool, ToolCall

# Some templates leave out the text of a message with calls. It is taken out, the calls are rendered
# with a unique mark, and the text is inserted in front of them, where the model wrote it.

_MARKS = 250  # kinds of marks, taken in turn: a call may be shown again with its result


def taken_out(
    conversation: Sequence[Entry], form: ModelFormat, capabilities: TemplateCapabilities
) -> tuple[list[Entry], list[Traced]]:
    """Return the messages, those with calls without their text, and the texts taken out."""
    left: list[Entry] = []
    texts: list[Traced] = []
    for entry in conversation:
        calls = entry.get("tool_calls")
        if isinstance(calls, list) and entry["content"]:
            first, mark = calls[0], _choose_origin_byte(len(texts))
            function = {**first["function"], "name": Traced(first["function"]["name"], mark)}
            first = {**first, "id": Traced(str(first["id"]), mark), "function": function}
            opened = authored(form.said_open or form.answer_open)
            closed = authored(form.said_close or form.answer_close)
            texts.append(joined((opened, content_text(entry["content"]), closed)))
            entry = {**entry, "content": capabilities.no_content, "tool_calls": [first, *calls[1:]]}
        left.append(entry)
    return left, texts


def _choose_origin_byte(text_index: int) -> int:
    return FINAL + 1 + text_index % _MARKS


_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Names in templates for showing the reasoning of earlier turns too. A client that sends it back
# wants that; most leave it out unless they are told, and the prompt is not the one in the cache.
_PAST_REASONING: dict[str, object] = {
    "clear_thinking": False,
    "drop_thinking": False,
    "keep_past_thinking": True,
    "preserve_thinking": True,
    "preserved_thinking": True,
    "truncate_history_thinking": False,
}


class Prompt(Struct, frozen=True, tag=True):
    """A rendered request, and the white space that the model itself writes next."""

    rendered: Rendered
    leading: str  # white space that the model itself writes before its answer
    leading_call: str | None  # white space before a call without text; ``None`` if unknown
    several_calls: bool  # the model writes several calls in one message


def render(
    template: ChatTemplate,
    format: ModelFormat,
    request: ChatRequest,
    *,
    thinking_on: bool | None,
    effort: str | None,
) -> Rendered:
    """Return the prompt of a request; ``thinking_on`` ``None`` leaves thinking to the model.

    Raises :class:`InvalidRequest` where the template refuses the messages.
    """
    if request.documents and not template.shows_documents:
        raise InvalidRequest(
            "This model's chat template shows no `documents`; put them into a message.",
            code="unsupported_parameter",
            param="documents",
        )
    capabilities = format_capabilities(template, format)
    continued = request.continue_final_message
    conversation = _build_conversation_entries(format, request, capabilities, thinking_on)
    tools = [history.tool_entry(tool, capabilities) for tool in request.tools]
    shows_tools = format.native_tools and capabilities.tools
    if tools and not shows_tools:
        conversation = history.with_system(conversation, history.tools_text(tools, format.calls))
    conversation = history.arranged(conversation, capabilities)
    said: list[Traced] = []
    if format.said_open or not capabilities.text_before_calls:
        conversation, said = taken_out(conversation, format, capabilities)
    rendered = template.render(
        list(map(in_parts, conversation)) if capabilities.parts else conversation,
        tools=tools if tools and shows_tools else capabilities.empty_tools,
        documents=request.documents or None,
        add_generation_prompt=request.add_generation_prompt and not continued,
        kwargs={
            **_PAST_REASONING,
            **request.template_kwargs,
            **thinking_kwargs(format.thinking, thinking_on, effort),
        },
        amended=partial(_insert_before_calls, texts=said, format=format, capabilities=capabilities),
    )
    if continued:
        last = request.messages[-1]
        thought = "" if last.text.strip() or last.tool_calls else last.reasoning_content or ""
        if thought and (rendered.final_end is None or not capabilities.reasoning):
            return _render_continued_reasoning(template, format, request, thought, effort)
    return _adjust_prompt_end(rendered, request, format)


def _render_continued_reasoning(
    template: ChatTemplate,
    format: ModelFormat,
    request: ChatRequest,
    thought: str,
    effort: str | None,
) -> Rendered:
    # Many templates leave out the reasoning of a message without content.
    marks, on = format.reasoning, True if format.thinking else None
    fresh = structs.replace(
        request,
        messages=request.messages[:-1],
        add_generation_prompt=True,
        continue_final_message=False,
    )
    rendered = render(template, format, fresh, thinking_on=on, effort=effort)
    opened = rendered.text
    if opened.endswith(marks.open):
        opened += marks.after_open
    elif not opened.rstrip().endswith(marks.opens):
        space = leading_of(template, _freeze_thinking_kwargs(format, on)) or ""
        opened += space + marks.open + marks.after_open
    return Rendered(opened + thought, (*rendered.user, (len(opened), len(opened) + len(thought))))


def before_call(template: ChatTemplate, format: ModelFormat) -> str | None:
    """Return the text that the template puts between a message's text and its call.

    The result is ``None`` if the template does not show it.
    """
    calls = format.calls
    said, call = "Ahorn", ToolCall("abcdefgh1", "probe", "{}")
    answer = Message("assistant", said, tool_calls=(call,))
    messages = (Message("user", ""), answer, Message("tool", "", tool_call_id=call.id))
    tool = Tool(call.name, {"type": "object", "properties": {}}, call.name)
    asked = ChatRequest("", messages, tools=(tool,))
    try:
        items = render(template, format, asked, thinking_on=None, effort=None).text
    except InvalidRequest:
        return None
    first = calls.call[0]
    resumed = calls.begin + (first.text if isinstance(first, Literal) else call.name)
    between, found, _ = items.rpartition(said)[2].partition(resumed)
    return between if found else None


def prompt_of(template: ChatTemplate, format: ModelFormat, request: ChatRequest) -> Prompt:
    """Render a request, and return its prompt with the white space that the model writes next."""
    thought = thinking.plan(format, request.thinking)
    capabilities = format_capabilities(template, format)
    leading = partial(leading_of, template, _freeze_thinking_kwargs(format, thought.on))
    called = format.native_tools and capabilities.calls
    several = format.native_tools and capabilities.tools and capabilities.several
    return Prompt(
        rendered=render(template, format, request, thinking_on=thought.on, effort=thought.effort),
        leading=leading() or "",
        leading_call=leading(capabilities) if called else None,
        several_calls=format.calls.parallel and several,
    )


def _freeze_thinking_kwargs(format: ModelFormat, on: bool | None) -> tuple[tuple[str, object], ...]:
    return tuple(thinking_kwargs(format.thinking, on, None).items())


def thinking_kwargs(
    switch: ThinkingSwitch | None, on: bool | None, effort: str | None
) -> dict[str, object]:
    """Return the template arguments for thinking (on, off, unset) and the nearest known effort."""
    if switch is None:
        return {}
    chosen = {} if on is None else switch.on if on else switch.off
    kwargs = {name: authored(v) if isinstance(v, str) else v for name, v in chosen.items()}
    if switch.effort and effort and on is not False:
        kwargs[switch.effort] = authored(_choose_nearest_effort(effort, switch.efforts))
    return kwargs


def _choose_nearest_effort(effort: str, known_efforts: Sequence[str]) -> str:
    ranked = [word for word in known_efforts if word in _EFFORTS]
    if effort in known_efforts or effort not in _EFFORTS or not ranked:
        return effort
    rank = _EFFORTS.index(effort)
    return min(ranked, key=lambda word: (abs(_EFFORTS.index(word) - rank), _EFFORTS.index(word)))


def format_capabilities(template: ChatTemplate, format: ModelFormat) -> TemplateCapabilities:
    return capabilities_of(
        template,
        format.arguments,
        format.reasoning_keys,
        (format.reasoning.open, format.reasoning.close),
        tuple((_PAST_REASONING | thinking_kwargs(format.thinking, True, None)).items()),
    )


def _build_conversation_entries(
    format: ModelFormat,
    request: ChatRequest,
    capabilities: TemplateCapabilities,
    thinking_on: bool | None,
) -> list[Entry]:
    keys = format.reasoning_keys
    items = history.entries(request.messages, capabilities, keys)
    if request.continue_final_message:
        items[-1] = history.with_final(items[-1], keys)
    calls = format.calls
    shows_calls = format.native_tools and capabilities.calls
    in_messages = format.answer_open and not format.answer_close  # texts and calls are
    whole = capabilities.together and (capabilities.text_before_calls or not in_messages)
    if shows_calls:
        items = history.one_call_each(items, capabilities)
    else:
        items = history.without_calls(items, calls)
    if capabilities.marked and not capabilities.reasoning:
        thought, gap = format.reasoning, capabilities.gap
        items = [history.with_reasoning(entry, thought, keys, gap) for entry in items]
    items = history.in_turns(items, capabilities)
    told = capabilities.told and not (capabilities.text_before_calls or format.answer_open)
    if shows_calls and not capabilities.calls_alongside_text:
        items = [history.said_calls(one, calls) if one["content"] else one for one in items]
    elif shows_calls and not (whole or format.said_open):
        items = [part for one in items for part in history.apart(one, capabilities, keys)]
    elif shows_calls and told:
        items = [
            history.said_calls(one, calls)
            if one["content"] and not any(map(one.get, keys))
            else one
            for one in items
        ]
    switch = format.thinking
    if switch is not None and thinking_on is not None:
        word = switch.system_on if thinking_on else switch.system_off
        if word:
            items = history.with_system(items, authored(word))
    if switch is None and thinking_on:
        marks = f"{format.reasoning.open} and {format.reasoning.close}"
        asked = authored(f"First think step by step between {marks}, then answer.")
        items = history.with_system(items, asked)
    return items


def _insert_before_calls(
    prompt: Traced, texts: Sequence[Traced], format: ModelFormat, capabilities: TemplateCapabilities
) -> Traced:
    # Each text stands in front of its calls, which begin with ``begin``. If that is empty, they
    # begin with the names of their functions.
    calls, origin = format.calls, origin_of(prompt)
    begin = "" if isinstance(calls.call[0], Name) else calls.lead + calls.starts[0]
    parts: list[str] = []
    done = at = 0
    for index, text in enumerate(texts):
        call = origin.find(_choose_origin_byte(index), at)
        start = prompt.rfind(begin, done, call) if call >= 0 else call
        while start >= 0 and any(origin[start : start + len(begin)]):
            start = prompt.rfind(begin, done, start)
        if start >= 0:
            parts += (prompt[done:start], text)
            done, at = start, call
    whole = joined((*parts, prompt[done:]))
    return whole if capabilities.reasoning else history.thought_once(whole, format.reasoning)


def _adjust_prompt_end(rendered: Rendered, request: ChatRequest, format: ModelFormat) -> Rendered:
    if not request.continue_final_message:
        ends = format.prompt_end if request.add_generation_prompt else ""
        return Rendered(rendered.text + ends, rendered.user)
    if rendered.final_end is None:
        raise InvalidRequest(
            "The model's chat template does not show the last message, so it cannot be continued.",
            param="continue_final_message",
        )
    last = request.messages[-1]
    said = last.text or (format.reasoning_keys and last.reasoning_content) or ""
    return rendered.upto(rendered.final_end - (0 if said.strip() else len(history.PLACEHOLDER)))
