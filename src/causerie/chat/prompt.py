"""From a request to a prompt: messages, tools and wishes, as the model's template shows them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from causerie.chat import beside, fallback, history
from causerie.chat.formats.format import Calls, Format, Literal, Reasoning, ThinkingSwitch
from causerie.chat.parser import call_triggers
from causerie.chat.taint import Traced, authored
from causerie.chat.template import ChatTemplate, Rendered
from causerie.chat.traits import Entry, Traits, leading_of, traits_of
from causerie.errors import InvalidRequest
from causerie.offload import offload
from causerie.protocol.request import ChatRequest, Message, Tool, ToolCall

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# What templates call it that the reasoning of earlier turns is shown too. Whoever sends it back
# wants that; most leave it out unless they are told, and the prompt is not the one in the cache.
_RECALL: dict[str, object] = {
    "clear_thinking": False,
    "drop_thinking": False,
    "keep_past_thinking": True,
    "preserve_thinking": True,
    "preserved_thinking": True,
    "truncate_history_thinking": False,
}
_LONG = 200_000  # characters; a longer conversation takes milliseconds, so it goes to a thread
_MANY = 200  # messages, likewise


def render(
    template: ChatTemplate,
    format: Format,
    request: ChatRequest,
    *,
    thinking_on: bool | None,
    effort: str | None,
) -> Rendered:
    """The prompt of a request; ``thinking_on`` ``None`` leaves thinking to the model.

    Raises :class:`InvalidRequest` where the template refuses the messages.
    """
    if request.documents and not template.shows_documents:
        raise InvalidRequest(
            "This model's chat template shows no `documents`; put them into a message.",
            code="unsupported_parameter",
            param="documents",
        )
    traits = _traits(template, format)
    continued = request.continue_final_message
    conversation = _conversation(format, request, traits, thinking_on)
    tools = history.tool_entries(request.tools, traits)
    shows_tools = format.native_tools and traits.tools
    if tools and not shows_tools:
        conversation = history.with_system(conversation, fallback.tools_text(tools, _calls(format)))
    conversation = history.arranged(conversation, traits)
    said: list[Traced] = []
    if format.said_open or not traits.text_before_calls:
        conversation, said = beside.taken_out(conversation, format, traits)
    rendered = template.render(
        history.in_parts(conversation) if traits.parts else conversation,
        tools=tools if tools and shows_tools else traits.empty_tools,
        documents=request.documents or None,
        add_generation_prompt=request.add_generation_prompt and not continued,
        kwargs={
            **_RECALL,
            **request.template_kwargs,
            **thinking_kwargs(format.thinking, thinking_on, effort),
        },
        amended=partial(_amended, said=said, format=format, traits=traits),
    )
    return _ended(rendered, request, format)


def leading(template: ChatTemplate, format: Format, thinking_on: bool | None) -> str:
    """The white space that the model itself writes between its prompt and its answer."""
    kwargs = tuple(thinking_kwargs(format.thinking, thinking_on, None).items())
    return leading_of(template, kwargs) or ""


def leading_call(template: ChatTemplate, format: Format, thinking_on: bool | None) -> str | None:
    """The same before a call that nothing is said before; ``None`` where no telling."""
    traits = _traits(template, format)
    if not (format.native_tools and traits.calls):
        return None
    kwargs = tuple(thinking_kwargs(format.thinking, thinking_on, None).items())
    return leading_of(template, kwargs, traits)


def writes_several_calls(template: ChatTemplate, format: Format) -> bool:
    """Return whether the model is known to write several calls in one message.

    It is where its template shows functions and messages with several calls.
    """
    traits = _traits(template, format)
    parallel = format.calls is not None and format.calls.parallel
    return parallel and format.native_tools and traits.tools and traits.several


def before_call(template: ChatTemplate, format: Format) -> str | None:
    """What stands between a text and its call in the history; ``None`` where no telling."""
    calls = _calls(format)
    said, call = "Ahorn", ToolCall("abcdefgh1", "probe", "{}")
    answer = Message("assistant", said, tool_calls=(call,))
    messages = (Message("user", ""), answer, Message("tool", "", tool_call_id=call.id))
    tool = Tool(call.name, {"type": "object", "properties": {}}, call.name)
    asked = ChatRequest("", messages, tools=(tool,))
    try:
        told = render(template, format, asked, thinking_on=None, effort=None).text
    except InvalidRequest:
        return None
    first = calls.call[0]
    begun = calls.begin + (first.text if isinstance(first, Literal) else "")
    between, found, _ = told.rpartition(said)[2].partition(begun)
    return between if found else None


async def render_aside(
    template: ChatTemplate,
    format: Format,
    request: ChatRequest,
    *,
    thinking_on: bool | None,
    effort: str | None,
) -> Rendered:
    """As :func:`render`; a long conversation is rendered in a thread, so nobody else waits."""
    work = partial(render, template, format, request, thinking_on=thinking_on, effort=effort)
    size = sum(len(message.text) for message in request.messages)
    small = not request.large and size <= _LONG and len(request.messages) <= _MANY
    return work() if small else await offload(work)


def thinking_kwargs(
    switch: ThinkingSwitch | None, on: bool | None, effort: str | None
) -> dict[str, object]:
    """The template's keyword arguments for a setting; an effort becomes the nearest it knows."""
    if switch is None:
        return {}
    chosen = {} if on is None else switch.on if on else switch.off
    kwargs = {name: authored(v) if isinstance(v, str) else v for name, v in chosen.items()}
    if switch.effort and effort and on is not False:
        kwargs[switch.effort] = authored(_nearest(effort, switch.efforts))
    return kwargs


def _nearest(effort: str, known: Sequence[str]) -> str:
    ranked = [word for word in known if word in _EFFORTS]
    if effort in known or effort not in _EFFORTS or not ranked:
        return effort
    rank = _EFFORTS.index(effort)
    return min(ranked, key=lambda word: (abs(_EFFORTS.index(word) - rank), _EFFORTS.index(word)))


def _traits(template: ChatTemplate, format: Format) -> Traits:
    thought = format.reasoning or Reasoning()
    return traits_of(
        template,
        format.arguments,
        format.reasoning_keys,
        (thought.open, thought.close),
        tuple((_RECALL | thinking_kwargs(format.thinking, True, None)).items()),
    )


def _conversation(
    format: Format, request: ChatRequest, traits: Traits, thinking_on: bool | None
) -> list[Entry]:
    """The messages with calls, reasoning and wishes in a form that the template shows."""
    keys = format.reasoning_keys
    told = history.entries(request.messages, traits, keys)
    if request.continue_final_message:
        told[-1] = history.with_final(told[-1], keys)
    calls = _calls(format)
    shows_calls = format.native_tools and traits.calls
    in_messages = format.answer_open and not format.answer_close  # texts and calls are
    whole = traits.together and (traits.text_before_calls or not in_messages)
    told = (
        history.one_call_each(history.results_placed(told, traits), traits)
        if shows_calls
        else fallback.without_calls(told, calls)
    )
    if format.reasoning is not None and traits.marked and not traits.reasoning:
        reasoning = format.reasoning
        told = [fallback.with_reasoning(entry, reasoning, keys, traits.gap) for entry in told]
    told = history.in_turns(told, traits)
    if shows_calls and not traits.calls_beside_text:
        told = [fallback.said_calls(entry, calls) if entry["content"] else entry for entry in told]
    elif shows_calls and not (whole or format.said_open):
        told = [part for entry in told for part in history.apart(entry, traits, keys)]
    elif shows_calls and not traits.text_before_calls and traits.told and not format.answer_open:
        told = [fallback.said_beside(entry, calls, keys) for entry in told]
    switch = format.thinking
    if switch is not None and thinking_on is not None:
        word = switch.system_on if thinking_on else switch.system_off
        if word:
            told = history.with_system(told, authored(word))
    if switch is None and thinking_on and format.reasoning is not None:
        told = history.with_system(told, fallback.thinking_text(format.reasoning))
    return told


def _calls(format: Format) -> Calls:
    return format.calls or fallback.PLAIN_CALLS


def _amended(prompt: Traced, said: Sequence[Traced], format: Format, traits: Traits) -> Traced:
    """The prompt with what the template left out, and without what it says against it."""
    calls = _calls(format)
    whole = beside.put_back(prompt, said, begin=calls.lead + call_triggers(calls)[0])
    if format.reasoning is None or traits.reasoning:
        return whole
    return fallback.thought_once(whole, format.reasoning)


def _ended(rendered: Rendered, request: ChatRequest, format: Format) -> Rendered:
    """The prompt up to where the model begins, or the message that is to be continued ends."""
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
