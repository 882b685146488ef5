"""Our own service as somebody's upstream: what it says comes through unchanged, also continued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from casekit import first_of
from providerkit import F, in_order, joined, request
from service import serving

from causerie.errors import InvalidRequest
from causerie.http.client import HttpClient
from causerie.protocol.events import (
    Event,
    Finished,
    Partial,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
)
from causerie.protocol.request import ChatRequest
from causerie.providers.dialects import DIALECTS
from causerie.providers.provider import Provider
from causerie.providers.target import ProviderTarget

COUNT = [{"role": "user", "content": "Write the numbers from one to ten as words."}]
PRIME = [{"role": "user", "content": "Is seven a prime number? Think first."}]


@pytest.fixture(scope="module")
def base_url(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = f"""
        [[models]]
        id = "small"
        ref = "{gguf}"
        [models.llamacpp]
        context = 1024
        parallel = 2
        threads = 1
        [[doors]]
        name = "endpoint"
        keys = "off"
    """
    with serving(tmp_path_factory.mktemp("own"), config) as service:
        yield service.base_url


async def said(base_url: str, asked: ChatRequest, partial: Partial | None = None) -> list[Event]:
    provider = Provider("own", HttpClient(base_url), DIALECTS["causerie"])
    try:
        async with ProviderTarget(provider, "small").generate(asked, partial) as reply:
            assert list(reply.changes) == []
            events = [event async for batch in reply.events for event in batch]
    finally:
        await provider.close()
    in_order(events)
    return events


@pytest.mark.parametrize("thinking", first_of([True, False]))
@pytest.mark.parametrize("cut", first_of([1, 6]))
async def test_a_reply_continued_is_the_reply(base_url: str, thinking: bool, cut: int) -> None:
    kwargs = {"enable_thinking": thinking}
    asked = request(
        messages=PRIME,
        stream=True,
        temperature=0,
        max_tokens=60,
        thinking_token_budget=12,
        chat_template_kwargs=kwargs,
    ) if thinking else request(
        messages=COUNT, stream=True, temperature=0, max_tokens=40, chat_template_kwargs=kwargs
    )  # fmt: skip
    whole = await said(base_url, asked)
    pieces = [event.text for event in whole if isinstance(event, TextDelta)]
    reasoning = "".join(event.text for event in whole if isinstance(event, ReasoningDelta))
    assert bool(reasoning) == thinking
    partial = Partial(reasoning=reasoning, text="".join(pieces[:cut]), completion=20)
    rest = await said(base_url, asked, partial)
    text = "".join(event.text for event in rest if isinstance(event, TextDelta))
    assert not [event for event in rest if isinstance(event, ReasoningDelta)]
    assert text
    assert "".join(pieces[cut:]).startswith(text[:8])


async def test_a_plain_reply_says_what_the_stream_says(base_url: str) -> None:
    fields = {"messages": COUNT, "temperature": 0, "max_tokens": 20, "logprobs": True}
    streamed = await said(base_url, request(stream=True, **fields))
    plain = await said(base_url, request(**fields))
    assert joined(streamed)[:-1] == joined(plain)[:-1]


async def test_forced_calls(base_url: str) -> None:
    choice = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
    asked = request(
        tools=[F], tool_choice={"type": "allowed_tools", "allowed_tools": choice}, max_tokens=80
    )
    events = await said(base_url, asked)
    assert [event.name for event in events if isinstance(event, ToolCallStarted)] == ["f"]
    assert [event for event in events if isinstance(event, Finished)] == [Finished("tool_calls")]


async def test_a_refusal_keeps_its_parameter_and_its_words(base_url: str) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "odd"}}}
    with pytest.raises(InvalidRequest) as refused:
        await said(base_url, request(response_format=shape))
    assert refused.value.param is not None
    assert refused.value.param.startswith("response_format")
    assert refused.value.metadata["upstream_status"] == 400
