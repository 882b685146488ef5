"""Models of a provider: compared with what is configured, taken over in one step."""

from __future__ import annotations

from pathlib import Path

import pytest
from accountkit import World
from configurekit import LISTED, added, configured
from consolekit import lite as lite
from operationskit import result

from causerie.errors import InvalidRequest
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.operations.configuring import Configuring, EntryStep, EntryView, EntryWish
from causerie.hosted.operations.provider_models import ComparedModel, compared, removal, taken_over


async def entry(configuration: Configuring, kind: str, name: str) -> EntryView:
    every = await configuration.every(SYSTEM)
    return next(each for each in every if (each.kind, each.name) == (kind, name))


async def seen(configuration: Configuring) -> dict[str, ComparedModel]:
    provider = await entry(configuration, "provider", "west")
    listed = await configuration.listed(SYSTEM, "west")
    assert listed.listing.ok, listed
    found = compared(provider, listed.models, await configuration.every(SYSTEM))
    return {each.id: each for each in found}


async def take_over(configuration: Configuring, *ids: str, gone: tuple[str, ...] = ()) -> None:
    provider = await entry(configuration, "provider", "west")
    listed = (await configuration.listed(SYSTEM, "west")).models
    picked = [each for each in listed if each.id in ids]
    entries = await configuration.every(SYSTEM)
    await configuration.apply(SYSTEM, taken_over(provider, entries, picked, gone))


async def test_models_are_taken_over_and_refreshed_with_a_diff(lite: World, tmp_path: Path) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        await added(made, "provider", name="west", base_url=lists.base_url)
        assert [each.state for each in (await seen(configuration)).values()] == ["new", "new"]
        await take_over(configuration, "vendor/small", "vendor/large")
        small = (await entry(configuration, "alias", "vendor/small")).settings
        assert small["name"] == "Small"
        assert small["price"] == {"prompt": "0.2", "completion": "0.6"}
        west = await entry(configuration, "provider", "west")
        assert west.settings["models"][1] == {"id": "vendor/large", "context_length": 65536}
        assert {"vendor/small", "vendor/large"} <= set(made.services.models())
        assert {each.state for each in (await seen(configuration)).values()} == {"same"}

        dearer = {"prompt": "0.0000003", "completion": "0.0000006"}
        lists.models = [{**LISTED[0], "pricing": dearer}, {"id": "vendor/next"}]
        found = await seen(configuration)
        states = {id: each.state for id, each in found.items()}
        expected = {"vendor/small": "changed", "vendor/next": "new", "vendor/large": "gone"}
        assert states == expected
        await take_over(configuration, "vendor/small", gone=("vendor/large",))
        small = (await entry(configuration, "alias", "vendor/small")).settings
        assert small["price"]["prompt"] == "0.3"
        west = await entry(configuration, "provider", "west")
        assert [each["id"] for each in west.settings["models"]] == ["vendor/small"]
        assert "vendor/large" not in made.services.models()


async def test_several_changes_are_made_as_one_or_not_at_all(lite: World, tmp_path: Path) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        before = await configuration.every(SYSTEM)
        good = EntryWish(settings={"name": "west", "base_url": lists.base_url})
        target = {"provider": "nobody", "model": "m"}
        wrong = [EntryWish(settings={"id": one, "targets": [target]}) for one in ("a", "b")]
        steps = [EntryStep(kind="provider", wish=good)]
        steps += [EntryStep(kind="alias", wish=each) for each in wrong]
        with pytest.raises(InvalidRequest) as refused:
            await configuration.apply(SYSTEM, steps)
        assert len(refused.value.metadata["problems"]) == 2
        assert await configuration.every(SYSTEM) == before


async def test_a_provider_goes_with_its_targets(lite: World, tmp_path: Path) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        await added(made, "provider", name="west", base_url=lists.base_url)
        west, north = ({"provider": one, "model": "m"} for one in ("west", "north"))
        await added(made, "alias", id="only", targets=[west])
        await added(made, "alias", id="both", targets=[west, north])
        gone = await entry(configuration, "provider", "west")
        await configuration.apply(SYSTEM, removal(gone, await configuration.every(SYSTEM)))
        left = {each.name for each in await configuration.every(SYSTEM) if not each.locked}
        assert left == {"both"}
        both = await entry(configuration, "alias", "both")
        assert both.settings["targets"] == [north]


async def test_a_probe_is_put_into_the_entry_of_its_provider(lite: World, tmp_path: Path) -> None:
    async with configured(lite, tmp_path) as (made, lists):
        configuration = made.services.configuration
        context = {"id": "vendor/small", "context_length": 4096}
        await added(made, "provider", name="west", base_url=lists.base_url, models=[context])
        target = {"provider": "west", "model": "vendor/small"}
        await added(made, "alias", id="small", targets=[target])
        before = made.file.read_text(encoding="utf-8")
        probed = result("west", "vendor/small", context_length=None)
        await made.examinations.results.keep(probed)
        used = await made.services.use(SYSTEM, "west", "vendor/small")
        assert (used.written, used.in_force, used.problem) == (True, True, "")
        [known] = (await entry(configuration, "provider", "west")).settings["models"]
        assert known["context_length"] == 4096
        assert known["supported_parameters"] == ["max_tokens", "seed", "temperature"]
        assert made.file.read_text(encoding="utf-8") == before
