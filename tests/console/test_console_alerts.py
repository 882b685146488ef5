"""The page of alerts: what operators see of channels, rules and deliveries, and a test of each."""

from __future__ import annotations

from html import unescape
from pathlib import Path

from accountkit import World
from consolekit import ScriptedServiceView, console_of
from operationskit import Market, market
from webhookreceiver import webhook_receiver

from causerie.accounts.audit import AuditFilter
from causerie.accounts.people import SYSTEM, Role
from causerie.alerts.condition import Condition
from causerie.alerts.message import AlertKind
from causerie.composition.alerting import alert_options

PAGE = "/operator/alerts"
MARKUP = Condition("provider:north", AlertKind.PROVIDER, "Provider <b>north</b> fails")


async def fired(made: Market, *conditions: Condition) -> None:
    """Have these told, as the service would."""
    center = made.service.alerting.center
    await center.observe(conditions, alert_options(made.service.settings))
    await center.deliver()


async def test_operators_see_and_test_channels(lite: World, tmp_path: Path) -> None:
    async with webhook_receiver() as hook, market(lite, tmp_path, hook=hook.url) as made:
        service_view = ScriptedServiceView()
        service_view.operations = made.services
        async with console_of(lite, service_view=service_view) as place:
            visitor = await place.visitor_of(await lite.person("operator", operator=True))
            empty = unescape((await visitor.get(PAGE)).text)
            for words in (
                *("signed webhook", hook.url.split("/")[2], "ops@example.org, on-call@example.org"),
                *("has used 50 %, 80 % or 100 % of a budget", "Nothing has been sent yet."),
                *("expires within 14, 3 or 1 days.", "person that it belongs to gets a letter."),
            ):
                assert words in empty
            assert "hook?team" not in empty
            await fired(made, MARKUP)
            told = (await visitor.get(PAGE)).text
            assert "Provider &lt;b&gt;north&lt;/b&gt; fails" in told
            assert "took it with status 204" in told
            assert "did not take the letter" in told
            hook.words, hook.answers = "no <i>such</i> room", [404]
            for channel, words in (
                ("ops", 'refused it with status 404. It said: "no <i>such</i> room"'),
                ("ops", "took it with status 204"),
                ("team", "127.0.0.1:9 did not take the letter"),
            ):
                page = await visitor.post(f"{PAGE}/{channel}/test")
                assert page.status == 200
                assert words in unescape(page.text)
                assert "<i>" not in page.text
            assert (await visitor.post(f"{PAGE}/nobody/test")).status == 404
            assert (await visitor.post(f"{PAGE}/ops/test", {"form_token": "x"})).status == 403
            assert [each["outcome"] for each in await noted(lite)] == [
                *("failed", "delivered", "failed"),
            ]
            for role in (Role.OWNER, Role.MEMBER):
                user = await lite.person()
                await lite.join(await lite.project(owner=await lite.person()), user, role)
                stranger = await place.visitor_of(user)
                assert (await stranger.get(PAGE)).status == 403
                assert (await stranger.post(f"{PAGE}/ops/test")).status == 403
                assert PAGE not in (await stranger.get("/profile")).text
            assert len(await noted(lite)) == 3


async def noted(world: World) -> list[dict[str, str]]:
    """Details of the audit entries of tests, oldest first."""
    entries = await world.projects.audit_of_all(SYSTEM, AuditFilter())
    return [dict(each.details) for each in reversed(entries) if each.action == "alerts.test"]
