"""The router's catalog over HTTP: entries, filters, pages, and what is not told twice."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from faultkit import Reply, upstream
from servicekit import ServiceView, service_view

from causerie.catalog.catalog import Catalog
from causerie.catalog.endpoint import CatalogEndpoint
from causerie.catalog.listing import Listing
from causerie.catalog.model import ModelCard, ModelProfile, Tariff
from causerie.catalog.page_cache import CatalogCache
from causerie.errors import InvalidRequest, NotFound
from causerie.protocol.targets import Candidate, Figures
from causerie.settings.load import load
from causerie.settings.problems import SettingsError
from causerie.settings.tree import Settings

R = "/router/v1"
DAY = date(2025, 5, 1)


def config(base_url: str) -> str:
    return f"""\
[[doors]]
name = "router"
kind = "router"
keys = "off"

[[models]]
id = "small"
engine = "fake"
options = {{ context_length = 1024 }}

[[providers]]
name = "dear"
base_url = "{base_url}"
[providers.health]
path = ""
[[providers.models]]
id = "big"
context_length = 8192
supported_parameters = ["max_tokens", "tools", "tool_choice", "seed"]
probed = 2025-06-01

[[providers]]
name = "cheap"
base_url = "{base_url}"
[providers.health]
path = ""

[[catalog]]
id = "acme/big"
name = "Big"
description = "A big model."
created = {DAY}
ends = 2999-01-01
aliases = ["big"]
[[catalog.endpoints]]
provider = "dear"
model = "big"
price = {{ prompt = "2", completion = "6.5", cached = "0.2", reasoning = "9" }}
quantization = "fp8"
[[catalog.endpoints]]
provider = "cheap"
model = "big-q4"
price = {{ prompt = "1", completion = "3" }}
context_length = 4096
max_output_tokens = 1024
supported_parameters = ["max_tokens", "temperature"]
keeps_data = false

[[catalog]]
id = "acme/big:free"
[[catalog.endpoints]]
provider = "cheap"
model = "big-q4"
context_length = 2048
supported_parameters = ["max_tokens"]

[[catalog]]
id = "own/small"
[[catalog.endpoints]]
model = "small"
price = {{ prompt = "0.1", completion = "0.1" }}

[[catalog]]
id = "acme/old"
ends = 2020-01-01
[[catalog.endpoints]]
provider = "cheap"
model = "old"
"""


async def ids(there: ServiceView, query: str = "") -> list[str]:
    status, listed = await there.get(f"{R}/models{query}")
    assert status == 200, listed
    assert listed["total_count"] >= len(listed["data"])
    return [entry["id"] for entry in listed["data"]]


async def test_the_catalog_is_open_and_says_what_it_costs(tmp_path: Path) -> None:
    async with (
        upstream([Reply("Yes.")]) as up,
        service_view(tmp_path, config(up.base_url)) as there,
    ):
        status, listed = await there.get(f"{R}/models")
        assert status == 200
        entries = {entry["id"]: entry for entry in listed["data"]}
        assert list(entries) == ["acme/big", "acme/big:free", "own/small"]  # what is over is gone
        assert listed["total_count"] == 3
        assert listed["links"] == {"next": None}
        big = entries["acme/big"]
        assert big["name"] == "Big"
        assert big["created"] == 1746057600
        assert big["pricing"] == {"prompt": "0.000001", "completion": "0.000003", "request": "0"}
        assert big["context_length"] == 8192
        assert big["max_output_tokens"] == 1024
        assert big["top_provider"]["context_length"] == 4096
        assert big["expiration_date"] == "2999-01-01"
        assert {"tools", "seed", "temperature"} <= set(big["supported_parameters"])
        free = entries["acme/big:free"]
        assert free["pricing"] == {"prompt": "0", "completion": "0", "request": "0"}
        assert free["context_length"] == 2048
        assert "tools" not in free["supported_parameters"]
        status, counted = await there.get(f"{R}/models/count")
        assert counted == {"data": {"count": 3}}
        status, one = await there.get(f"{R}/models/big")
        assert one["id"] == "acme/big"
        status, one = await there.get(f"{R}/model/acme/big")
        assert one["data"] == big
        status, refused = await there.get(f"{R}/models/acme/old")
        assert (status, refused["error"]["code"]) == (404, "model_not_found")


async def test_a_model_without_a_date_has_none(tmp_path: Path) -> None:
    async with (
        upstream([Reply("Yes.")]) as up,
        service_view(tmp_path, config(up.base_url)) as there,
    ):
        _, listed = await there.get(f"{R}/models")
        created = {entry["id"]: entry["created"] for entry in listed["data"]}
    assert created["own/small"] == 0


async def test_each_endpoint_has_its_own_facts(tmp_path: Path) -> None:
    async with (
        upstream([Reply("Yes, it is.")]) as up,
        service_view(tmp_path, config(up.base_url)) as it,
    ):
        before = await endpoints(it, "acme/big")
        assert before["dear/big"]["supported_parameters_measured"] == "2025-06-01"
        assert before["dear/big"]["pricing"]["input_cache_read"] == "0.0000002"
        assert before["dear/big"]["pricing"]["internal_reasoning"] == "0.000009"
        assert "internal_reasoning" not in before["cheap/big-q4"]["pricing"]
        assert before["dear/big"]["quantization"] == "fp8"
        assert before["cheap/big-q4"]["keeps_data"] is False
        assert before["cheap/big-q4"]["latency_last_5m"] is None
        assert before["cheap/big-q4"]["uptime_last_5m"] is None
        status, headers, answer = await it.ask(R, "acme/big", provider={"only": ["cheap"]})
        assert (status, headers["x-served-by"]) == (200, "cheap/big-q4")
        assert answer["model"] == "acme/big"
        after = (await endpoints(it, "acme/big"))["cheap/big-q4"]
        assert after["latency_last_5m"]["p50"] > 0
        assert after["uptime_last_5m"] == 100
        assert after["uptime_last_1d"] == 100
        own = await endpoints(it, "own/small")
        assert own["small"]["provider_name"] == "causerie"


async def endpoints(there: ServiceView, model: str) -> Mapping[str, Any]:
    status, shown = await there.get(f"{R}/models/{model}/endpoints")
    assert status == 200, shown
    return {one["tag"]: one for one in shown["data"]["endpoints"]}


async def test_filters_sorts_and_pages(tmp_path: Path) -> None:
    async with (
        upstream([Reply("Yes.")]) as up,
        service_view(tmp_path, config(up.base_url)) as there,
    ):
        assert await ids(there, "?supported_parameters=tools,seed") == ["acme/big", "own/small"]
        assert await ids(there, "?output_modalities=image") == []
        assert await ids(there, "?output_modalities=text") == await ids(there)
        assert await ids(there, "?model_authors=own") == ["own/small"]
        assert await ids(there, "?providers=dear") == ["acme/big"]
        assert await ids(there, "?q=FREE") == ["acme/big:free"]
        assert await ids(there, "?context=1024") == ["acme/big", "acme/big:free", "own/small"]
        assert await ids(there, "?context=4096") == ["acme/big"]
        assert await ids(there, "?max_price=0.1") == ["acme/big:free", "own/small"]
        cheap = ["acme/big:free", "own/small", "acme/big"]
        assert await ids(there, "?sort=pricing-low-to-high") == cheap
        assert await ids(there, "?sort=pricing-high-to-low") == cheap[::-1]
        assert (await ids(there, "?sort=context-high-to-low"))[0] == "acme/big"
        seen: list[str] = []
        path: str | None = f"{R}/models?limit=2&sort=pricing-low-to-high"
        while path is not None:
            status, listed = await there.get(path)
            assert (status, listed["total_count"]) == (200, 3)
            seen += [entry["id"] for entry in listed["data"]]
            path = listed["links"]["next"]
        assert seen == cheap
        for wrong in ("?sort=best", "?limit=0", "?offset=-1", "?max_price=x", "?zdr=true"):
            status, refused = await there.get(f"{R}/models{wrong}")
            assert (status, refused["error"]["type"]) == (400, "invalid_request_error"), wrong


async def test_what_is_known_already_is_not_sent_again(tmp_path: Path) -> None:
    async with (
        upstream([Reply("Yes.")]) as up,
        service_view(tmp_path, config(up.base_url)) as there,
    ):
        url = f"{there.root}{R}/models"
        async with there.session.get(url) as first:
            etag, length = first.headers["etag"], first.headers["content-length"]
        async with there.session.get(url, headers={"if-none-match": etag}) as again:
            assert (again.status, await again.read()) == (304, b"")
            assert again.headers["etag"] == etag
        async with there.session.get(url, headers={"if-none-match": '"other"'}) as other:
            assert other.status == 200
        async with there.session.head(url) as head:
            assert (head.status, head.headers["content-length"]) == (200, length)
        for plain in ("identity", "br, gzip;q=0", "gzip; q=0.000, *"):
            async with there.session.get(url, headers={"accept-encoding": plain}) as whole:
                assert "content-encoding" not in whole.headers
                assert whole.headers["etag"] == etag
                assert int(whole.headers["content-length"]) > int(length)
        small = {"accept-encoding": "br;q=0, gzip;q=0.5"}
        async with there.session.get(url, headers=small) as taken:
            assert taken.headers["content-encoding"] == "gzip"
        changed = config(up.base_url).replace('name = "Big"', 'name = "Bigger"')
        await there.reload(changed)
        async with there.session.get(url, headers={"if-none-match": etag}) as new:
            assert new.status == 200
            assert b'"Bigger"' in await new.read()


def listing(number: int, **more: Any) -> Listing:
    endpoint = CatalogEndpoint(
        Candidate(f"e{number}/m"),
        None,
        lambda: ModelProfile(context_length=number + 1),
        provider=f"e{number}",
        tariff=Tariff(Decimal(number) / 10**6, Decimal(number) / 10**6),
    )
    card = ModelCard(f"author/model-{number}", f"Model {number}", "words " * 20)
    return Listing(card, (endpoint,), lambda name: None, no_figures, **more)


def no_figures(target: str) -> Figures:
    return Figures()


def test_what_a_model_can_follows_the_profiles_of_its_endpoints() -> None:
    now = [ModelProfile(context_length=100)]
    supported = frozenset({"tools", "seed"})
    endpoint = CatalogEndpoint(Candidate("e/m"), supported, lambda: now[0], provider="e")
    one = Listing(ModelCard("a/b", "B"), (endpoint,), lambda name: None, no_figures)
    assert (one.context_length, one.input_modalities) == (100, frozenset({"text"}))
    assert one.parameters == {"tools", "seed"}
    now[0] = ModelProfile(context_length=200, images=True, lacks=frozenset({"tools"}))
    assert (one.context_length, one.input_modalities) == (200, frozenset({"text", "image"}))
    assert one.parameters == {"seed"}
    assert one == Listing(one.card, one.endpoints, one.stats_of, no_figures)


async def test_a_thousand_entries_are_a_copy_of_bytes() -> None:
    entries = [listing(number) for number in range(1000)]
    catalog_cache, asked = CatalogCache(lambda: 0.0), 0

    def every() -> list[Listing]:
        nonlocal asked
        asked += 1
        return entries

    first = await catalog_cache.page("router", "/v1/models", "", every)
    again = await catalog_cache.page("router", "/v1/models", "", every)
    assert again is first
    assert asked == 1
    assert first.body.count(b'"canonical_slug"') == 1000


async def test_no_more_is_kept_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog_cache, one = CatalogCache(lambda: 0.0), [listing(1)]
    size = len((await catalog_cache.page("router", "/", "", lambda: one)).body)
    monkeypatch.setattr("causerie.catalog.page_cache._MOST_BYTES", 10 * size)
    queries = [f"q=author&limit={number + 1}" for number in range(100)]
    for query in queries:
        await catalog_cache.page("router", "/", query, lambda: one)
    kept = [query for query in reversed(queries) if b'"id"' in await _again(catalog_cache, query)]
    assert 5 <= len(kept) <= 10
    assert kept == queries[: -len(kept) - 1 : -1]


async def test_pages_that_show_nothing_are_not_kept_without_end() -> None:
    """Whoever asks for what nobody has, again and again, asks for another page each time."""
    catalog_cache, one = CatalogCache(lambda: 0.0), [listing(1)]
    queries = [f"limit={number + 1}&q=author" for number in range(1000)]
    for query in queries:
        await catalog_cache.page("router", "/", query, lambda: one)
    kept = [query for query in reversed(queries) if b'"id"' in await _again(catalog_cache, query)]
    assert 0 < len(kept) <= 256


async def _again(catalog_cache: CatalogCache, query: str) -> bytes:
    """The page that is kept, or an empty one."""
    return (await catalog_cache.page("router", "/", query, list)).body


async def test_pages_are_made_anew_after_a_while_and_written_anew_after_a_change() -> None:
    now, length = [0.0], [100]
    endpoint = CatalogEndpoint(
        Candidate("e/m"), None, lambda: ModelProfile(context_length=length[0]), provider="e"
    )
    one = Listing(ModelCard("a/b", "B"), (endpoint,), lambda name: None, no_figures)
    catalog_cache = CatalogCache(lambda: now[0])

    async def page() -> bytes:
        return (await catalog_cache.page("router", "/v1/models", "", lambda: [one])).body

    assert b'"context_length":100' in await page()
    length[0] = 200
    assert b'"context_length":100' in await page()
    now[0] = 10.0
    assert b'"context_length":200' in await page()


def test_a_model_is_there_until_its_last_day() -> None:
    last = date(2025, 1, 31)
    assert not listing(1, ends=last, clock=lambda: last).is_over
    over = listing(1, ends=last, clock=lambda: last + timedelta(days=1))
    assert over.is_over
    with pytest.raises(NotFound) as missing:
        Catalog([over]).resolve(None, f"{over.id}s")
    assert over.id not in str(missing.value).replace(f"{over.id}s", "")


def settings(folder: Path, text: str) -> Settings:
    file = folder / "causerie.toml"
    file.write_text(text, encoding="utf-8")
    return load(file=file, environ={"XDG_CACHE_HOME": str(folder)}).settings


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('provider = "cheap"\nmodel = "old"', 'provider = "none"\nmodel = "old"', "endpoint"),
        ('model = "small"\nprice', 'model = "smaller"\nprice', "model"),
        ('id = "acme/old"', 'id = "acme/big"', "id"),
        ('id = "acme/old"', 'id = "old"', "id"),
        ('aliases = ["big"]', 'aliases = ["small"]', "aliases"),
        ('"max_tokens", "temperature"', '"max_token"', "supported_parameters"),
        ("context_length = 2048", 'price = { prompt = "1" }', "price"),
        ('prompt = "2"', 'prompt = "-2"', "prompt"),
    ],
)
def test_a_wrong_catalog_is_refused_where_it_is_wrong(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    text = config("http://127.0.0.1:1/v1")
    assert text.count(old) == 1
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, text.replace(old, new))
    assert key in str(caught.value)


def test_a_router_takes_keys_of_accounts_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    text = config("http://127.0.0.1:1/v1").replace('keys = "off"\n', "")
    [door] = settings(tmp_path, text).doors
    assert door.keys == "accounts"


async def test_a_query_with_too_many_parts_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        await CatalogCache().page("router", "/models", "&".join(["q=a"] * 100), list)


async def test_a_thousand_entries_over_http(tmp_path: Path) -> None:
    more = "".join(
        f'[[catalog]]\nid = "author/m{n}"\n[[catalog.endpoints]]\nprovider = "cheap"\nmodel = '
        f'"m{n}"\n'
        for n in range(1000)
    )
    async with (
        upstream([Reply("Yes.")]) as up,
        service_view(tmp_path, config(up.base_url) + more) as there,
    ):
        assert len(await ids(there)) == 1003
        assert len(await ids(there, "?offset=990&limit=500")) == 13
