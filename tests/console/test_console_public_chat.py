"""Chat without an account: named free models only, so much a day, and nothing but messages."""

from __future__ import annotations

import json
from datetime import timedelta
from secrets import token_hex
from typing import Any

import pytest
from accountkit import World
from consolekit import Page, Visitor, console_of
from marketkit import Fair, small_market
from valkeyserver import ValkeyServer

from causerie.distributed.connection import DistributedOptions, Replica
from causerie.distributed.limits import DistributedBudgets
from causerie.errors import InvalidRequest, RateLimited, UpstreamFailed
from causerie.hosted.console.public_chat import PublicChat, PublicChatOptions
from causerie.settings.catalog import (
    CatalogEndpointSettings,
    CatalogModelSettings,
    PublicChatSettings,
    public_chat_rules,
)
from causerie.settings.values import PriceSettings

FREE = "qwen/qwen3-8b:free"
OPTIONS = PublicChatOptions(
    frozenset({FREE, "acme/iris-large", "no/such"}), messages_per_day=2, max_characters=40
)
HELLO = [{"role": "user", "content": "Hello"}]


async def say(visitor: Visitor, messages: Any, at: str = FREE, **more: Any) -> Page:
    headers = {
        "content-type": "application/json",
        "origin": f"http://127.0.0.1:{visitor.port}",
        "x-form-token": visitor.form_token,
    }
    body = json.dumps({"messages": messages, **more}).encode()
    return await visitor.ask("POST", f"/catalog/{at}/chat", body, headers)


def fair(world: World) -> Fair:
    return Fair(small_market(world.now))


async def test_a_stranger_chats_with_a_named_free_model_until_the_days_end(lite: World) -> None:
    view = fair(lite)
    async with console_of(lite, service_view=view, chat=OPTIONS) as place:
        stranger = place.visitor()
        assert f"{FREE}/chat" in (await stranger.get(f"/catalog/{FREE}")).text
        page = await stranger.get(f"/catalog/{FREE}/chat")
        assert "2 messages a day" in page.text
        for _ in range(2):
            answer = await say(stranger, HELLO)
            assert (answer.status, "data: [DONE]" in answer.text) == (200, True)
        assert set(view.talked[0]) == {
            "model",
            "messages",
            "max_tokens",
            "stream",
            "stream_options",
        }
        assert (view.talked[0]["model"], view.talked[0]["max_tokens"]) == (FREE, 512)
        refused = await say(stranger, HELLO)
        assert refused.status == 429
        assert "none is left" in json.loads(refused.text)["error"]["message"]
        assert int(refused.headers["retry-after"]) <= 86_400
        assert len(view.talked) == 2


async def _refuses(stranger: Visitor) -> None:
    for model in ("acme/iris-large", "qwen/qwen3-8b", "zeta/mystery", "no/such"):
        assert (await stranger.get(f"/catalog/{model}/chat")).status == 404
        assert (await say(stranger, HELLO, model)).status == 404
    assert f"{FREE}:nitro/chat" not in (await stranger.get("/catalog")).text
    others: list[dict[str, Any]] = [{"model": "acme/iris-large"}, {"tools": []}, {"max_tokens": 9}]
    for more in others:
        assert (await say(stranger, HELLO, **more)).status == 400
    system = [{"role": "system", "content": "x"}, *HELLO]
    for messages in (system, [], [{"role": "user", "content": [{"type": "image_url"}]}]):
        assert (await say(stranger, messages)).status == 400
    long = await say(stranger, [{"role": "user", "content": "x" * 41}])
    assert json.loads(long.text)["error"]["code"] == "conversation_too_long"
    stranger.form_token = "0" * 64
    assert (await say(stranger, HELLO)).status == 403


async def test_all_else_is_denied(lite: World) -> None:
    view = fair(lite)
    async with console_of(lite, service_view=view, chat=OPTIONS) as place:
        stranger = place.visitor()
        await stranger.get(f"/catalog/{FREE}/chat")
        await _refuses(stranger)
    async with console_of(lite, service_view=view) as place:
        assert (await place.visitor().get(f"/catalog/{FREE}/chat")).status == 404
        assert f"{FREE}/chat" not in (await place.visitor().get(f"/catalog/{FREE}")).text
    assert view.talked == []


async def test_an_address_has_one_reply_at_a_time_and_failures_do_not_count(lite: World) -> None:
    now = lite.now
    options = PublicChatOptions(messages_per_day=2, total_messages_per_day=3, concurrent=2)
    chat = PublicChat(options, lambda: now)

    async with chat.message("2001:db8::1"):
        assert "under way" in await refused(chat, "2001:db8::2")  # of the same network
        async with chat.message("10.0.0.1"):
            assert "Too many visitors" in await refused(chat, "10.0.0.2")
    with pytest.raises(UpstreamFailed):
        async with chat.message("10.0.0.1"):
            raise UpstreamFailed("away")
    async with chat.message("10.0.0.1"):
        pass
    assert "none is left" in await refused(chat, "10.0.0.1")
    assert "All messages" in await refused(chat, "10.0.0.3")
    now += timedelta(days=1)
    async with chat.message("10.0.0.1"):
        pass


async def refused(chat: PublicChat, address: str) -> str:
    with pytest.raises(RateLimited) as failure:
        async with chat.message(address):
            pass
    return failure.value.message


async def test_replicas_count_visitors_together(lite: World, valkey: ValkeyServer) -> None:
    options = PublicChatOptions(messages_per_day=2, total_messages_per_day=3, concurrent=2)
    shared = DistributedOptions(prefix=token_hex(4))
    here, there = Replica(valkey.url, shared), Replica(valkey.url, shared)
    async with here.running(), there.running():
        await here.wait()
        await there.wait()
        one, other = (
            PublicChat(options, lite.clock, DistributedBudgets(each)) for each in (here, there)
        )
        async with one.message("10.0.0.1"):
            assert "under way" in await refused(other, "10.0.0.1")
            async with one.message("10.0.0.2"):
                assert "Too many visitors" in await refused(other, "10.0.0.3")
        with pytest.raises(UpstreamFailed):
            async with other.message("10.0.0.1"):
                raise UpstreamFailed("away")
        async with other.message("10.0.0.1"):
            pass
        for chat in (one, other):
            assert "none is left" in await refused(chat, "10.0.0.1")
            assert "All messages" in await refused(chat, "10.0.0.4")


async def test_a_replica_without_the_others_counts_by_itself(lite: World) -> None:
    alone = DistributedBudgets(Replica("valkey://127.0.0.1:1"))
    chat = PublicChat(PublicChatOptions(messages_per_day=1), lite.clock, alone)
    async with chat.message("10.0.0.1"):
        pass
    assert "none is left" in await refused(chat, "10.0.0.1")


def test_a_conversation_ends_with_words_of_the_visitor(lite: World) -> None:
    chat = PublicChat(OPTIONS, lite.clock)
    for messages in (
        [*HELLO, {"role": "assistant", "content": "Hi"}],
        [HELLO[0] | {"content": " "}],
    ):
        with pytest.raises(InvalidRequest):
            chat.request(json.dumps({"messages": messages}).encode(), FREE)


def test_a_model_that_costs_something_is_refused_by_the_settings() -> None:
    price = PriceSettings(request="0.1")
    entry = CatalogModelSettings(
        id="a/m", endpoints=(CatalogEndpointSettings(model="m", provider="p", price=price),)
    )
    chat = PublicChatSettings(models=("b/of-the-database", "a/m"))
    [broken] = public_chat_rules(chat, [entry])
    assert broken.path == ("public_chat", "models", 1)
