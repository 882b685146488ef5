"""Images by their addresses: passed on to providers, never fetched here nor by a server of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from casekit import each_of
from chatkit import Unchecked
from faultkit import Reply, upstream
from gatewaykit import gateway
from providerkit import request

from causerie.chat.chat import TextChat
from causerie.composition.providers import connected
from causerie.engines.base import ModelFacts
from causerie.engines.registry import FakeEngine
from causerie.errors import InvalidRequest
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.settings.credentials import Credentials
from causerie.settings.load import load
from causerie.settings.tree import Settings

ENCLOSED = "data:image/png;base64,iVBORw0KGgo="
ADDRESS = "https://example.org/a.png"
AT = "messages[1].content[1].image_url.url"
FETCH = {
    "causerie", "openai", "openrouter", "mistral", "anthropic", "azure", "azure-deployments"
}  # fmt: skip


class Seeing(FakeEngine):
    """A model that takes images."""

    async def facts(self) -> ModelFacts:
        return replace(await super().facts(), vision=True)


def seen(url: str) -> list[dict[str, Any]]:
    """A conversation with an image."""
    image = {"type": "image_url", "image_url": {"url": url}}
    return [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]},
    ]


@each_of("name", DIALECTS)
def test_who_is_given_an_address(name: str) -> None:
    dialect = DIALECTS[name]
    assert dialect.fetches == (name in FETCH)
    for fetches, url in ((False, ENCLOSED), (True, ENCLOSED), (True, ADDRESS)):
        given = outgoing(request(messages=seen(url)), replace(dialect, fetches=fetches), "theirs")
        assert url.removeprefix("data:image/png;base64,").encode() in given.body
    with pytest.raises(InvalidRequest, match="as a `data:` address") as refused:
        outgoing(request(messages=seen(ADDRESS)), replace(dialect, fetches=False), "theirs")
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", AT)


async def test_a_request_goes_to_who_may_be_given_it() -> None:
    async with (
        upstream(Reply()) as ours,
        upstream(Reply()) as provider,
        gateway(ours.base_url, provider.base_url, dialect=("vllm", "openai")) as there,
    ):
        answer = await there.plain(messages=seen(ADDRESS))
        assert (answer.status, answer.headers["x-served-by"]) == (200, "e1")
        assert ADDRESS.encode() in provider.requests[0].raw
        assert not ours.requests
        assert (await there.plain(messages=seen(ENCLOSED))).headers["x-served-by"] == "e0"


async def test_where_nobody_may_be_given_it_the_request_is_refused() -> None:
    async with upstream(Reply()) as ours, gateway(ours.base_url) as there:
        for answer in (
            await there.plain(messages=seen(ADDRESS)),
            await there.stream(messages=seen(ADDRESS)),
        ):
            assert answer.status == 400
            assert answer.error is not None
            assert (answer.error["code"], answer.error["param"]) == ("unsupported_parameter", AT)
        assert not ours.requests


@pytest.mark.parametrize("says", [None, True, False])
@pytest.mark.parametrize("dialect", ["vllm", "openai"])
async def test_the_settings_of_an_provider_say_otherwise(
    tmp_path: Path, dialect: str, says: bool | None
) -> None:
    text = f'[[providers]]\nname = "a"\nbase_url = "http://a.example/v1"\ndialect = "{dialect}"\n'
    if says is not None:
        text += f"fetches_images = {str(says).lower()}\n"
    one = connected(settings(tmp_path, text), Credentials(), {})["a"]
    assert one.provider.dialect.fetches == (dialect == "openai" if says is None else says)
    await one.client.close()


@pytest.mark.parametrize(
    ("engine", "url", "words"),
    [
        (FakeEngine("m"), ENCLOSED, "takes no images"),
        (FakeEngine("m"), ADDRESS, "takes no images"),
        (Seeing("m"), ADDRESS, "fetches no images"),
    ],
)
async def test_an_engine_of_ours_fetches_nothing(engine: FakeEngine, url: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        async with TextChat(engine, Unchecked()).generate(request(messages=seen(url))):
            pytest.fail("it was accepted")
    assert refused.value.code == "unsupported_parameter"
    assert (refused.value.param or "").startswith("messages[1].content[1]")


def settings(folder: Path, text: str) -> Settings:
    """As a file says them."""
    file = folder / "causerie.toml"
    file.write_text(text)
    return load(file=file, environ={}).settings
