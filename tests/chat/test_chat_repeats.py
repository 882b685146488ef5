"""Several calls in one message: who may write them, and where they end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from casekit import each_of
from chatkit import Reply, Unchecked, together, whole_and_cuts
from formatkit import WEATHER, Call, write_calls
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.calls import Repeats
from causerie.chat.chat import TextChat, TextChatOptions
from causerie.chat.formats.registry import by_name
from causerie.engines.registry import FakeEngine, FakeScript
from causerie.protocol.events import ContentEvent, ToolCallDelta, ToolCallStarted
from causerie.protocol.request import ChatRequest, Message, Tool, ToolChoice

FALLBACK = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' }}
""".strip()
_CITIES = st.sampled_from(["P", "Pa", "Paris", "Parisé", ""])


def written(*cities: str) -> str:
    calls = ({"name": "get_weather", "arguments": {"city": city}} for city in cities)
    return "\n".join(
        f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>" for call in calls
    )


def asked(parallel: bool | None = None, mode: str = "required") -> ChatRequest:
    return ChatRequest(
        "m",
        (Message("user", "Hi"),),
        tools=(Tool("get_weather", WEATHER),),
        tool_choice=ToolChoice("required" if mode == "required" else "auto"),
        parallel_tool_calls=parallel,
    )


def chat(text: str, template: str | None = None) -> TextChat:
    engine = FakeEngine("m", FakeScript([text] * 2), context_length=100_000)
    return TextChat(engine, Unchecked(), TextChatOptions(template=template))


async def reply_of(text: str, request: ChatRequest, template: str | None = None) -> Reply:
    async with chat(text, template).generate(request) as answer:
        return together([batch async for batch in answer.events])


def cities(reply: Reply) -> list[str]:
    return [json.loads(call.arguments)["city"] for call in reply.calls]


@each_of(
    ("template", "parallel", "made"),
    [
        (None, None, ["Oslo"]),  # no marker of the family ends its calls, and one is forced
        (None, False, ["Oslo"]),
        (None, True, ["Oslo", "Rome"]),
        (FALLBACK, None, ["Oslo"]),  # the template shows no functions
        (FALLBACK, False, ["Oslo"]),
        (FALLBACK, True, ["Oslo", "Rome"]),
    ],
)
async def test_several_calls_come_from_a_model_that_writes_them_or_where_they_are_asked_for(
    template: str | None, parallel: bool | None, made: list[str]
) -> None:
    reply = await reply_of(written("Oslo", "Rome"), asked(parallel), template)
    assert (cities(reply), reply.finish, reply.text) == (made, "tool_calls", "")


async def test_a_model_that_chose_to_call_ends_its_calls_itself() -> None:
    reply = await reply_of(written("Oslo", "Rome"), asked(None, "auto"))
    assert cities(reply) == ["Oslo", "Rome"]


@pytest.mark.parametrize("family", ["kimi-k2", "minimax-m2", "deepseek-v3.1", "hunyuan-a13b"])
async def test_forced_calls_of_families_that_close_them(family: str) -> None:
    form = by_name(family)
    made = [Call("get_weather", {"city": name}) for name in ("Oslo", "Rome")]
    template = (Path(__file__).parents[1] / "templates" / f"{family}.jinja").read_text()
    text = write_calls(form.calls, made)
    reply = await reply_of(text, asked(), template)
    assert (cities(reply), reply.finish) == (["Oslo", "Rome"], "tool_calls")


async def test_one_message_holds_a_bounded_number_of_calls() -> None:
    reply = await reply_of(written(*(f"City {n}" for n in range(50))), asked(True))
    assert (len(reply.calls), reply.finish) == (32, "tool_calls")


@pytest.mark.parametrize("mode", ["required", "auto"])
@given(names=st.lists(_CITIES, min_size=1, max_size=5))
async def test_a_repeated_call_ends_the_message(mode: str, names: list[str]) -> None:
    reply = await reply_of(written(*names), asked(True, mode))
    until = next((at for at, name in enumerate(names) if name in names[:at]), len(names))
    assert (cities(reply), reply.finish, reply.text) == (names[:until], "tool_calls", "")


async def test_a_repeated_call_ends_the_message_however_it_is_cut() -> None:
    request = asked(True)
    whole, cuts = await whole_and_cuts(chat(written("Oslo", "Rome", "Oslo", "Bern")), request)
    assert cities(whole) == ["Oslo", "Rome"]
    for cut in cuts:
        said = [call.arguments for call in cut.partial.calls]
        assert len(said) <= 2, said


@given(st.lists(_CITIES, min_size=1, max_size=6), st.integers(1, 4))
def test_what_is_delivered_are_the_calls_before_the_first_repetition(
    names: list[str], size: int
) -> None:
    repeats = Repeats()
    delivered: list[ContentEvent] = []
    for index, name in enumerate(names):
        delivered += repeats.start(ToolCallStarted(index, str(index), "f"))
        for at in range(0, len(name), size):
            delivered += repeats.add(ToolCallDelta(index, name[at : at + size]))
        left = repeats.end()
        if left is None:
            assert name in names[:index]
            break
        assert name not in names[:index]
        delivered += left
    assert joined(delivered) == list(dict.fromkeys(names))[: len(joined(delivered))]


def joined(events: Sequence[ContentEvent]) -> list[str]:
    """The arguments of each call that was delivered."""
    calls: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallStarted):
            assert event.index not in calls
            calls[event.index] = ""
        elif isinstance(event, ToolCallDelta):
            calls[event.index] += event.arguments
    return list(calls.values())
