"""Providers and aliases on the console: added, tried, chosen from, changed, deleted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
from accountkit import PASSWORD, World
from casekit import first_of
from configurekit import LISTED, SECRET, Listing, added, configured
from consolekit import Page, Place, ScriptedServiceView, Visitor, console_of
from operationskit import Market
from test_console_hostile import MARKUP, Elements

from causerie.hosted.accounts.people import SYSTEM

PROVIDERS = "/operator/providers"
ALIASES = "/operator/aliases"


@dataclass
class Bench:
    """A console over a market, a provider to add to it, and its operator."""

    place: Place
    market: Market
    lists: Listing
    operator: Visitor

    async def get(self, path: str) -> Page:
        return self._safe(await self.operator.get(path))

    async def post(self, path: str, **fields: object) -> Page:
        given = {name.replace("__", "."): value for name, value in fields.items()}
        return self._safe(await self.operator.post(path, given))

    async def add(self, **fields: object) -> Page:
        given = {"name": "west", "base_url": self.lists.base_url, "key": SECRET}
        return await self.post(f"{PROVIDERS}/add/new", **(given | fields))

    def _safe(self, page: Page) -> Page:
        assert SECRET not in page.text
        assert SECRET not in str(page.headers)
        return page


@pytest.fixture
async def bench(lite: World, tmp_path: Path) -> AsyncIterator[Bench]:
    async with configured(lite, tmp_path) as (made, lists):
        service_view = ScriptedServiceView()
        service_view.operations = made.services
        async with console_of(lite, service_view=service_view) as place:
            user = await lite.person("operator", operator=True, password=PASSWORD)
            yield Bench(place, made, lists, await place.visitor_of(user))


def picks(page: Page, kind: str = "pick") -> dict[str, str]:
    """The values of rows to pick, by the text of their row."""
    found = re.findall(
        rf'data-pick="([^"]*?) [^"]*">\s*<td>.*?name="{kind}" value="([^"]*)"', page.text
    )
    return {name: unescape(value) for name, value in found}


async def test_a_provider_is_picked_tried_and_added(bench: Bench) -> None:
    known = (await bench.get(f"{PROVIDERS}/add/new?find=anthro")).text
    assert "?known=anthropic" in known
    assert "?known=openai" not in known
    form = (await bench.get(f"{PROVIDERS}/add/new?known=anthropic")).text
    assert "begins with sk-ant-" in form
    assert "https://platform.claude.com/docs/en/api/messages" in form
    tried = {"name": "west", "base_url": bench.lists.base_url, "key": SECRET}
    good = (await bench.post(f"{PROVIDERS}/add/try", **tried)).text
    assert good.count("badge-good") == 3
    assert "first token after" in good
    bench.lists.refuses = True
    bad = (await bench.post(f"{PROVIDERS}/add/try", **tried)).text
    assert "Status 401: Incorrect" in bad
    assert PROVIDERS in (await bench.get(PROVIDERS)).text
    assert "/providers/west" not in (await bench.get(PROVIDERS)).text  # not kept yet
    made = await bench.add()
    assert made.target == f"{PROVIDERS}/west/models?done=provider-added"
    assert "could not be read. Status 401" in (await bench.get(f"{PROVIDERS}/west/models")).text
    shown = (await bench.get(f"{PROVIDERS}/west")).text
    assert "kept encrypted" in shown
    assert "database" in shown


async def test_all_problems_are_shown_at_their_fields(bench: Bench) -> None:
    wrong = {"base_url": "nowhere", "dialect": "latin", "max_concurrent": "few", "more": '{"x": 1}'}
    page = await bench.add(**wrong)
    assert page.status == 400
    invalid = set(re.findall(r'id="field-([a-z_]+)"[^>]*aria-invalid', page.text))
    assert invalid == {"base_url", "dialect", "max_concurrent"}
    assert "<code>x</code> is not a setting" in page.text
    assert 'value="few"' in page.text
    tried = await bench.post(f"{PROVIDERS}/add/try", name="west", base_url="nowhere")
    told = tried.text[tried.text.index('id="trial"') :]  # all that scripts take of the page
    assert "It was not tried" in told
    assert "<code>base_url</code>: It is" in told
    assert (await bench.add(more="{")).text.count('aria-invalid="true"') == 1
    taken = await bench.add(name="north")
    assert "causerie.toml:" in unescape(taken.text)


async def test_models_are_chosen_and_refreshed(bench: Bench) -> None:
    await bench.add()
    models = f"{PROVIDERS}/west/models"
    page = await bench.get(models)
    offered = picks(page)
    assert list(offered) == ["vendor/small", "vendor/large"]
    assert "8,192" in page.text
    nothing = await bench.post(models)
    assert "Nothing was picked" in nothing.text
    chosen = await bench.post(models, pick=offered["vendor/small"], prefix="west/")
    assert chosen.target == f"{PROVIDERS}/west?done=models-taken"
    assert "west/vendor/small" in bench.market.services.models()
    assert "up to date" in (await bench.get(models)).text
    bench.lists.models = [{**LISTED[1], "context_length": 1024}]
    page = await bench.get(models)
    assert list(picks(page, "gone")) == ["vendor/small"]
    assert (await bench.post(models, gone="vendor/small", all="yes")).status == 303
    assert "west/vendor/small" not in bench.market.services.models()
    assert "west/*" in (await bench.get(ALIASES)).text
    assert (await bench.post(models, pick="no model")).status == 400


async def test_many_models_leave_pages_short(bench: Bench) -> None:
    bench.lists.models = [{"id": f"m{number}"} for number in range(40)]
    await bench.add()
    picked = [
        ("pick", each) for each in picks(await bench.get(f"{PROVIDERS}/west/models")).values()
    ]
    assert (await bench.operator.post(f"{PROVIDERS}/west/models", picked)).status == 303
    folded = (await bench.get(PROVIDERS)).text
    assert "west/m0" not in folded
    opened = (await bench.get(f"{PROVIDERS}?open=west")).text
    assert "All 40 models" in opened
    assert opened.count('<strong class="cut" title="west/') == 12
    page = await bench.get(f"{PROVIDERS}/west")
    assert "28 more models are not shown" in page.text
    assert '<strong class="cut" title="west/m39">' in page.text
    found = await bench.get(f"{PROVIDERS}/west/models?find=m39")
    assert " disabled>" in found.text  # it is up to date
    assert 'data-pick="m39 "' in found.text
    assert 'data-pick="m38 "' not in found.text


async def test_a_provider_is_changed_switched_off_and_deleted(bench: Bench) -> None:
    await bench.add()
    west = f"{PROVIDERS}/west"
    await bench.post(
        f"{west}/models", pick=picks(await bench.get(f"{west}/models"))["vendor/small"]
    )
    form = await bench.get(f"{west}/edit")
    fields = {name: value for name, value in form.fields if name != "key"}
    assert fields["base_url"] == bench.lists.base_url
    assert "vendor/small" in unescape(form.text)  # its context, among the other settings
    fields["more"] = unescape(re.findall(r"(?s)<textarea[^>]*>(.*?)</textarea>", form.text)[0])
    moved = await bench.post(f"{west}/edit", **fields | {"base_url": "http://127.0.0.1:9/v1"})
    assert "give its key anew" in moved.text
    saved = await bench.post(f"{west}/edit", **fields | {"max_concurrent": "3"})
    assert saved.target == f"{west}?done=provider-saved"
    assert (await bench.post(f"{west}/edit", **fields)).status == 409
    assert "vendor/small" in (await bench.post(f"{west}/test")).text
    assert (await bench.post(f"{west}/disable")).status == 303
    off = (await bench.get(west)).text
    assert 'badge-dot">off' in off
    assert "vendor/small" not in bench.market.services.models()
    assert 'badge-dot">off' in (await bench.get(PROVIDERS)).text
    assert (await bench.post(f"{west}/enable")).status == 303
    asked = (await bench.get(f"{west}/delete")).text
    assert "1 alias loses this provider" in " ".join(asked.split())
    assert (await bench.post(f"{west}/delete")).target == f"{PROVIDERS}?done=provider-deleted"
    assert (await bench.get(west)).status == 404
    assert "vendor/small" not in (await bench.get(ALIASES)).text


async def test_what_the_file_says_is_locked(bench: Bench) -> None:
    page = (await bench.get(f"{PROVIDERS}/north")).text
    assert re.search(r"causerie\.toml:\d+", page)
    for path in ("edit", "delete"):
        assert f"/north/{path}" not in page
        assert (await bench.get(f"{PROVIDERS}/north/{path}")).status == 404
    aliases = (await bench.get(ALIASES)).text
    assert re.search(r"causerie\.toml:\d+", aliases)
    assert "north/m" in aliases


async def test_an_entry_that_does_not_hold_any_more_says_why(bench: Bench) -> None:
    await bench.add()
    file = bench.market.file
    taken = '\n[[providers]]\nname = "west"\nbase_url = "http://127.0.0.1:9/v1"\n'
    file.write_text(file.read_text("utf-8") + taken, encoding="utf-8")
    configuration = bench.market.configuration
    assert (await configuration.reload()).applied
    listed = unescape((await bench.get(PROVIDERS)).text)
    assert '"west" is taken by' in listed
    shown = (await bench.get(f"{PROVIDERS}/west")).text
    assert "The database has a provider of this name, too" in shown
    assert (await bench.post(f"{PROVIDERS}/west/delete")).status == 303
    assert "left out" not in (await bench.get(PROVIDERS)).text


async def test_an_alias_is_created_changed_and_deleted(bench: Bench) -> None:
    target = {"target_provider": "north", "target_model": "m", "target_priority": "1"}
    made = await bench.post(f"{ALIASES}/new", id="talk", **target, price__prompt="0.5")
    assert made.target == f"{ALIASES}?done=alias-added"
    assert "talk" in bench.market.services.models()
    [entry] = [
        e for e in await bench.market.services.configuration.every(SYSTEM) if e.name == "talk"
    ]
    assert entry.settings["targets"] == [{"provider": "north", "model": "m", "priority": 1}]
    place = f"{ALIASES}/{entry.id}"
    assert 'value="0.5"' in (await bench.get(place)).text
    wrong = await bench.post(place, id="talk", **target | {"target_weight": "-1"})
    assert wrong.status == 400
    assert 'name="target_weight" value="-1"' in wrong.text
    assert 'aria-invalid="true"' in wrong.text
    more = '{"price": {"cached": "0.1"}}'
    changed = await bench.post(place, id="talk", **target, price__prompt="0.7", more=more)
    assert changed.target == f"{ALIASES}?done=alias-saved"
    assert "cached" in unescape((await bench.get(place)).text)
    assert "are missing" in unescape((await bench.post(f"{ALIASES}/new", id="none")).text).lower()
    for path in ("disable", "enable"):
        assert (await bench.post(f"{place}/{path}")).status == 303
    assert (await bench.post(f"{place}/delete")).status == 303
    assert "talk" not in bench.market.services.models()
    assert (await bench.get(place)).status == 404


async def test_targets_keep_their_prices_and_the_list_says_where_prices_are_from(
    bench: Bench,
) -> None:
    price = {"prompt": "3", "completion": "15", "cache_write": "3.75"}
    target = {"provider": "north", "model": "m", "price": price}
    made = await added(bench.market, "alias", id="talk", targets=[target])
    place = f"{ALIASES}/{made.id}"
    form = await bench.get(place)
    fields = dict(reversed([*form.fields]))  # the first row; others are empty
    assert (fields["target_prompt"], fields["target_completion"]) == ("3", "15")
    fields |= {"target_price": unescape(fields["target_price"]), "target_completion": "16"}
    assert (await bench.post(place, **fields)).target == f"{ALIASES}?done=alias-saved"
    [entry] = [
        e for e in await bench.market.services.configuration.every(SYSTEM) if e.name == "talk"
    ]
    assert entry.settings["targets"] == [{**target, "price": {**price, "completion": "16"}}]
    wrong = await bench.post(place, **fields | {"target_price": "[]"})
    assert wrong.status == 400
    view = bench.place.service_view
    view.without_price = ("talk",)
    assert ">no price</span>" in (await bench.get(ALIASES)).text


@pytest.mark.parametrize("text", first_of(MARKUP, every=3))
async def test_names_of_a_provider_stay_text(bench: Bench, text: str) -> None:
    bench.lists.models = [{"id": text, "name": text}, LISTED[0]]
    await bench.add()
    pages = [await bench.get(f"{PROVIDERS}/west/models")]
    pages.append(await bench.post(f"{PROVIDERS}/west/models", pick=text, prefix=text, gone=text))
    pages.append(await bench.add(name=text, base_url=text, dialect=text, more=text))
    pages.append(
        await bench.post(f"{ALIASES}/new", id=text, target_provider=text, target_model=text)
    )
    for page in pages:
        assert "135419791" not in page.text
        Elements().feed(page.text)


async def test_only_operators_see_and_change_entries(bench: Bench) -> None:
    await bench.add()
    made = await added(
        bench.market, "alias", id="talk", targets=[{"provider": "north", "model": "m"}]
    )
    visitor = await bench.place.visitor_of(await bench.place.world.person())
    for path in ("add/new", "west", "west/edit", "west/delete", "west/models"):
        assert (await visitor.get(f"{PROVIDERS}/{path}")).status == 403, path
    for path in ("", "/new", f"/{made.id}", f"/{made.id}/delete"):
        assert (await visitor.get(f"{ALIASES}{path}")).status == 403, path
    for path in ("add/new", "add/try", "west/edit", "west/test", "west/disable", "west/delete"):
        fields = {"name": "west", "base_url": bench.lists.base_url}
        assert (await visitor.post(f"{PROVIDERS}/{path}", fields)).status == 403, path
    for path in ("new", made.id, f"{made.id}/disable", f"{made.id}/delete"):
        fields = {"id": "x", "target_model": "m"}
        assert (await visitor.post(f"{ALIASES}/{path}", fields)).status == 403, path
