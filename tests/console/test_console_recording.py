"""The pages of contents: who sees them, who switches them on, and hostile words stay words."""

from __future__ import annotations

from html import unescape

import msgspec
import pytest
from accountkit import World
from consolekit import Place
from ledgerkit import record
from pageskit import Team
from test_console_hostile import MARKUP, Elements

from causerie.hosted.accounts.people import SYSTEM, User
from causerie.hosted.accounts.records import Recording
from causerie.hosted.store.usage import SqlUsage
from causerie.metering.ledger import UsageRecord


async def asked(world: World, team: Team, user: User, words: str = "Plain words.") -> UsageRecord:
    """A request of somebody, whose contents are kept."""
    at = int(world.now.timestamp()) * 1_000_000 - 60_000_000
    usage = record(project=team.project.id, user=user.id, at=at)
    await SqlUsage(world.database).append([usage])
    text = msgspec.json.encode({"messages": [{"role": "user", "content": words}]}).decode()
    kept = Recording(usage.id, team.project.id, user.id, world.now, text, False, text, True)
    async with world.store.writing() as repositories:
        await repositories.recordings.put([kept])
    return usage


async def test_an_owner_switches_it_on_and_off(shop: Place, team: Team) -> None:
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/logging")
    assert "Off: prompts and replies are not kept." in page.text
    assert (await visitor.post(f"{team.path}/recording", {"days": "30"})).status == 303
    page = await visitor.get(f"{team.path}/logging?done=recording-on")
    assert "are kept for 30 days" in page.text
    assert "Request logging is on." in page.text
    assert "kept for 30 days" in (await visitor.get(f"{team.path}/activity")).text
    usage = await asked(shop.world, team, team.owner)
    assert (await visitor.get(f"{team.path}/activity/{usage.id}")).status == 200
    assert (await visitor.post(f"{team.path}/recording", {"off": "yes"})).status == 303
    assert (
        "Off: prompts and replies are not kept." in (await visitor.get(f"{team.path}/logging")).text
    )
    assert (await visitor.get(f"{team.path}/activity/{usage.id}")).status == 404
    assert (
        "Request logging is off: prompts and replies are not kept."
        in (await visitor.get(f"{team.path}/activity")).text
    )


@pytest.mark.parametrize("days", ["", "0", "91", "-1", "1.5", "٣", "9999", "<script>", "1e1"])
async def test_days_that_are_none_are_refused_in_the_form(
    shop: Place, team: Team, days: str
) -> None:
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.post(f"{team.path}/recording", {"days": days})
    assert page.status == 400
    assert 'id="field-days-note"' in page.text
    assert "Off: prompts and replies are not kept." in page.text


async def test_everybody_sees_what_the_table_says(shop: Place, team: Team) -> None:
    await shop.world.recordings.keep(SYSTEM, team.project.id, 7)
    theirs = await asked(shop.world, team, team.owner, "Words of the owner.")
    mine = await asked(shop.world, team, team.member, "Words of the member.")
    sees = {
        team.owner.id: {theirs.id, mine.id},
        team.member.id: {mine.id},
        team.viewer.id: set(),
        team.operator.id: set(),
    }
    for user in (team.owner, team.member, team.viewer, team.operator):
        visitor = await shop.visitor_of(user)
        page = await visitor.get(f"{team.path}/activity")
        for usage in (theirs, mine):
            seen = usage.id in sees[user.id]
            address = f"{team.path}/activity/{usage.id}"
            assert (f'href="/console{address}"' in page.text) is seen, user.name
            contents = await visitor.get(address)
            assert contents.status == (200 if seen else 403), user.name
            assert ("Words of the" in contents.text) is seen
    outside = await shop.visitor_of(team.outsider)
    assert (await outside.get(f"{team.path}/activity/{mine.id}")).status == 404
    service = await (await shop.visitor_of(team.operator)).get("/operator/activity")
    assert "Prompts and replies are not shown here." in service.text
    assert f"activity/{mine.id}" not in service.text


async def test_a_record_of_another_project_is_not_there(shop: Place, team: Team) -> None:
    await shop.world.recordings.keep(SYSTEM, team.project.id, 7)
    usage = await asked(shop.world, team, team.owner)
    other = await shop.world.project(owner=team.outsider)
    visitor = await shop.visitor_of(team.outsider)
    for id in (usage.id, "nonsense", "..%2F..", "%00"):
        assert (await visitor.get(f"/projects/{other.id}/activity/{id}")).status == 404


@pytest.mark.parametrize("words", MARKUP)
async def test_hostile_words_stay_words(shop: Place, team: Team, words: str) -> None:
    await shop.world.recordings.keep(SYSTEM, team.project.id, 7)
    usage = await asked(shop.world, team, team.owner, words)
    visitor = await shop.visitor_of(team.owner)
    page = await visitor.get(f"{team.path}/activity/{usage.id}")
    Elements().feed(page.text)
    assert "135419791" not in page.text
    assert msgspec.json.encode(words).decode() in unescape(page.text)
    assert page.text.count("Truncated: only the first 256 KiB are kept.") == 1
    assert words not in (await visitor.get(f"{team.path}/activity")).text


async def test_requests_are_found_by_what_was_said(shop: Place, team: Team) -> None:
    """By who may read it: the same rows as they could open, and none for the others."""
    await shop.world.recordings.keep(SYSTEM, team.project.id, 7)
    theirs = await asked(shop.world, team, team.owner, 'Say "fjord" in\nNorwegian.')
    mine = await asked(shop.world, team, team.member, "A fjord, please.")
    await asked(shop.world, team, team.member, "Something else.")
    found = {team.owner.id: {theirs.id, mine.id}, team.member.id: {mine.id}}
    for user in (team.owner, team.member):
        visitor = await shop.visitor_of(user)
        page = await visitor.get(f"{team.path}/activity?text=FJORD")
        shown = {one for one in (theirs.id, mine.id) if f"activity/{one}" in page.text}
        assert shown == found[user.id], user.name
        assert page.text.count('<details class="request"') == len(shown)
    owner = await shop.visitor_of(team.owner)
    whole = (await owner.get(f"{team.path}/activity?text=%22fjord%22%20in%0ANorwegian")).text
    assert whole.count('<details class="request"') == 1
    assert "No matching requests" in (await owner.get(f"{team.path}/activity?text=lake")).text
    viewer = await shop.visitor_of(team.viewer)
    assert (await viewer.get(f"{team.path}/activity?text=fjord")).status == 403


async def test_requests_of_a_person_are_found(shop: Place, team: Team) -> None:
    await shop.world.recordings.keep(SYSTEM, team.project.id, 7)
    theirs = await asked(shop.world, team, team.owner)
    mine = await asked(shop.world, team, team.member)
    visitor = await shop.visitor_of(team.owner)
    page = (await visitor.get(f"{team.path}/activity?user={team.member.id}")).text
    assert f"activity/{mine.id}" in page
    assert f"activity/{theirs.id}" not in page
    assert f'<option value="{team.member.id}" selected>' in page
