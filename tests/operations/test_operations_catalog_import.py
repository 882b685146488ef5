"""Models of providers: published in the catalog with a margin, joined, refreshed, dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from accountkit import World
from casekit import each_of
from configurekit import LISTED, added, configured
from consolekit import lite as lite

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.operations.configuring import Configuring, EntryStep, EntryView, published
from causerie.hosted.operations.provider_models import (
    Offer,
    PickedModel,
    PriceRules,
    catalog_id,
    offers,
    publication,
    router_door,
    withdrawal,
)

PRICED = {**LISTED[1], "pricing": {"prompt": "0.000001", "completion": "0.000002"}}
AS_PUBLISHED = PriceRules()
TWENTY = PriceRules(margin=Decimal(20))


async def provider_of(configuration: Configuring, name: str) -> EntryView:
    every = await configuration.every(SYSTEM)
    return next(each for each in every if (each.kind, each.name) == ("provider", name))


async def seen(
    configuration: Configuring, provider: str, rules: PriceRules = AS_PUBLISHED
) -> dict[str, Offer]:
    one = await provider_of(configuration, provider)
    listed = (await configuration.listed(SYSTEM, provider)).models
    found = offers(one, listed, await configuration.every(SYSTEM), rules)
    return {each.id: each for each in found}


async def publish(
    configuration: Configuring,
    provider: str,
    ids: Sequence[str] = (),
    rules: PriceRules = AS_PUBLISHED,
    gone: Sequence[str] = (),
) -> None:
    found = await seen(configuration, provider, rules)
    picked = [
        PickedModel(each.listed, each.catalog_id)
        for id in ids
        if (each := found[id]).listed is not None
    ]
    entries = await configuration.every(SYSTEM)
    one = await provider_of(configuration, provider)
    door = router_door(entries)
    steps = [*([door] if door else []), *publication(one, entries, picked, gone, rules)]
    await configuration.apply(SYSTEM, steps)


async def catalog(configuration: Configuring) -> Mapping[str, Mapping[str, Any]]:
    return {
        each.name: each.settings
        for each in await configuration.every(SYSTEM)
        if each.kind == "catalog_model" and not each.locked
    }


def states(found: Mapping[str, Offer]) -> dict[str, str]:
    return {id: each.state for id, each in found.items()}


async def test_a_model_of_two_providers_is_one_with_two_endpoints(
    lite: World, tmp_path: Path
) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        lists.models = [LISTED[0], PRICED]
        await added(made, "provider", name="west", base_url=lists.base_url)
        await added(made, "provider", name="east", base_url=lists.base_url)
        assert states(await seen(configuration, "west")) == {
            "vendor/small": "new",
            "vendor/large": "new",
        }
        await publish(configuration, "west", ["vendor/small", "vendor/large"], TWENTY)
        small = (await catalog(configuration))["vendor/small"]
        assert small["name"] == "Small"
        [west] = small["endpoints"]
        assert west["price"] == {"prompt": "0.24", "completion": "0.72"}
        assert west["cost"] == {"prompt": "0.2", "completion": "0.6"}
        assert west["context_length"] == 8192
        assert {"vendor/small", "vendor/large"} <= set(made.services.models())

        assert (await seen(configuration, "east"))["vendor/small"].state == "joins"
        await publish(configuration, "east", ["vendor/small"])
        every = await catalog(configuration)
        assert set(every) == {"vendor/small", "vendor/large"}
        both = every["vendor/small"]["endpoints"]
        assert [each["provider"] for each in both] == ["west", "east"]
        west_entry = await provider_of(configuration, "west")
        steps = withdrawal(west_entry, await configuration.every(SYSTEM))
        await configuration.apply(SYSTEM, [*steps, EntryStep(kind="provider", id=west_entry.id)])
        left = await catalog(configuration)
        assert [each["provider"] for each in left["vendor/small"]["endpoints"]] == ["east"]
        assert "vendor/large" not in left
        assert both[1]["price"] == both[1]["cost"] == {"prompt": "0.2", "completion": "0.6"}


async def test_a_refresh_keeps_each_models_margin_and_drops_what_is_gone(
    lite: World, tmp_path: Path
) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        lists.models = [LISTED[0], PRICED]
        await added(made, "provider", name="west", base_url=lists.base_url)
        await publish(configuration, "west", ["vendor/small", "vendor/large"], TWENTY)
        assert set(states(await seen(configuration, "west")).values()) == {"same"}

        dearer = {"prompt": "0.0000004", "completion": "0.0000006"}
        lists.models = [{**LISTED[0], "pricing": dearer}]
        found = await seen(configuration, "west")
        assert states(found) == {"vendor/small": "changed", "vendor/large": "gone"}
        assert found["vendor/small"].price == {"prompt": "0.48", "completion": "0.72"}
        assert found["vendor/small"].price_before == {"prompt": "0.24", "completion": "0.72"}
        await publish(configuration, "west", ["vendor/small"], gone=["vendor/large"])
        every = await catalog(configuration)
        assert set(every) == {"vendor/small"}
        assert every["vendor/small"]["endpoints"][0]["price"]["prompt"] == "0.48"
        await publish(configuration, "west", ["vendor/small"], PriceRules(margin=Decimal(0)))
        [west] = (await catalog(configuration))["vendor/small"]["endpoints"]
        assert west["price"] == {"prompt": "0.4", "completion": "0.6"}


async def test_a_price_that_a_person_typed_is_not_a_lists_to_change(
    lite: World, tmp_path: Path
) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        await added(made, "provider", name="west", base_url=lists.base_url)
        price = {"prompt": "7", "completion": "9"}
        typed = {"provider": "west", "model": "vendor/small", "price": price}
        await added(made, "catalog_model", id="mine/small", endpoints=[typed])
        found = (await seen(configuration, "west"))["vendor/small"]
        assert (found.state, found.catalog_id, found.price) == ("changed", "mine/small", price)
        await publish(configuration, "west", ["vendor/small"])
        [west] = (await catalog(configuration))["mine/small"]["endpoints"]
        assert west == {**typed, "context_length": 8192}


async def test_a_model_without_a_published_price_is_not_given_away(
    lite: World, tmp_path: Path
) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        await added(made, "provider", name="west", base_url=lists.base_url)
        with pytest.raises(InvalidRequest, match="no price for vendor/large"):
            await publish(configuration, "west", ["vendor/small", "vendor/large"])
        assert not await catalog(configuration)
        await publish(configuration, "west", ["vendor/large"], PriceRules(None, "1", "0"))
        [west] = (await catalog(configuration))["vendor/large"]["endpoints"]
        assert west["price"] == {"prompt": "1", "completion": "0"}
        assert (await seen(configuration, "west"))["vendor/large"].state == "same"


async def test_what_the_file_has_stays_the_files(lite: World, tmp_path: Path) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        filed = next(
            each for each in await configuration.every(SYSTEM) if each.kind == "catalog_model"
        )
        assert filed.locked
        lists.models = [{"id": filed.name.upper(), "pricing": {"prompt": "0", "completion": "0"}}]
        await added(made, "provider", name="west", base_url=lists.base_url)
        [found] = (await seen(configuration, "west")).values()
        assert (found.state, found.catalog_id) == ("filed", filed.name)
        with pytest.raises(InvalidRequest, match="The configuration file has"):
            await publish(configuration, "west", [filed.name.upper()])


@each_of(
    ("model", "expected"),
    [
        ("Qwen/Qwen3-8B", "qwen/qwen3-8b"),
        ("qwen3-8b", "west/qwen3-8b"),
        ("accounts/fire/models/llama v3", "west/llama-v3"),
        ("vendor/small:free", "vendor/small:free"),
        ("vendor/small:beta", "vendor/small-beta"),
        ("…/", "west/model"),
    ],
)
def test_ids_of_the_catalog_follow_from_those_of_providers(model: str, expected: str) -> None:
    assert catalog_id("west", model) == expected


def test_of_further_prices_only_those_above_zero_are_taken_over() -> None:
    pricing = {"prompt": "0.000001", "input_cache_read": "0.0000001", "internal_reasoning": "0"}
    listed = {"id": "m", "pricing": pricing | {"request": "0.01"}, "description": " So\n it is "}
    [one] = published([listed])
    prices = (one.prompt_price, one.cached_price, one.reasoning_price, one.request_price)
    assert prices == ("1", "0.1", None, "0.01")
    assert one.description == "So it is"
