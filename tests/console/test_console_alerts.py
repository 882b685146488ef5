"""The page of alerts: what operators see of channels, rules and deliveries, and a test of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path

from accountkit import World
from consolekit import ScriptedServiceView, console_of
from operationskit import Market, market
from webhookreceiver import SECRET, webhook_receiver

from causerie.composition.alerting import alert_options
from causerie.hosted.accounts.people import SYSTEM, Role
from causerie.hosted.accounts.records import AuditFilter
from causerie.hosted.operations.configuring import EntryView
from causerie.observe.alerts import AlertKind, Condition, secret_bytes

PAGE = "/operator/alerts"
MARKUP = Condition("provider:north", AlertKind.PROVIDER, "Provider <b>north</b> fails")


async def fired(made: Market, *conditions: Condition) -> None:
    """Have these told, as the service would."""
    center = made.alerting.center
    await center.observe(conditions, alert_options(made.service.now.settings))
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
                *("expires within 14, 3 or 1 days.", "person that it belongs to gets an e-mail."),
            ):
                assert words in empty
            assert "hook?team" not in empty
            await fired(made, MARKUP)
            told = (await visitor.get(PAGE)).text
            assert "Provider &lt;b&gt;north&lt;/b&gt; fails" in told
            assert "took it with status 204" in told
            assert "rejected the e-mail" in told
            hook.words, hook.answers = "no <i>such</i> room", [404]
            for channel, words in (
                ("ops", 'refused it with status 404. It said: "no <i>such</i> room"'),
                ("ops", "took it with status 204"),
                ("team", "127.0.0.1:9 rejected the e-mail"),
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


async def test_channels_are_added_changed_switched_and_deleted(lite: World, tmp_path: Path) -> None:
    async with webhook_receiver() as hook, market(lite, tmp_path) as made:
        service_view = ScriptedServiceView()
        service_view.operations = made.services
        async with console_of(lite, service_view=service_view) as place:
            visitor = await place.visitor_of(await lite.person("operator", operator=True))
            new = f"{PAGE}/channels/new"
            typed = {"kind": "webhook", "name": "pager", "url": hook.url, "kinds": "job"}
            wrong = unescape((await visitor.post(new, typed | {"key": "whsec_short"})).text)
            assert "cannot be used" in wrong
            assert "whsec_short" not in wrong
            shown = (await visitor.post(new, typed)).text
            [secret] = re.findall(r"whsec_[A-Za-z0-9+/=]{44}", unescape(shown))
            assert secret_bytes(secret)
            tested = unescape((await visitor.post(f"{PAGE}/pager/test")).text)
            assert "refused it with status 401" in tested, "it checks by another secret"
            assert secret not in tested
            entry = await of(made, "pager")
            assert entry.settings == {"name": "pager", "url": hook.url, "kinds": ["job"]}
            path = f"{PAGE}/channels/{entry.id}"
            assert secret not in (await visitor.get(path)).text
            await visitor.post(path, typed | {"version": "1", "key": SECRET, "kinds": "budget"})
            tested = unescape((await visitor.post(f"{PAGE}/pager/test")).text)
            assert "took it with status 204" in tested
            await visitor.post(f"{path}/disable")
            assert (await visitor.post(f"{PAGE}/pager/test")).status == 404
            await visitor.post(f"{path}/enable")
            await visitor.post(path, typed | {"version": "4", "name": "ops"})
            assert (await of(made, "pager")).name == "pager", "the file has that name"
            letters = {"kind": "email", "name": "night", "to": "a@example.org, b@example.org"}
            assert (await visitor.post(new, letters)).status == 303
            assert (await of(made, "night")).settings["to"] == ["a@example.org", "b@example.org"]
            await visitor.post(f"{path}/delete")
            assert "pager" not in made.service.now.credentials.alerts
            assert (await visitor.get(path)).status == 404
            [ops] = [each for each in await every(made) if each.name == "ops"]
            assert (ops.locked, ops.has_key) == (True, True)
            assert ops.settings == {"name": "ops", "url": "http://127.0.0.1:9"}
            slack = typed | {"name": "chat", "format": "slack"}
            assert (await visitor.post(new, slack)).status == 303, "it needs no secret"
            chat = await of(made, "chat")
            assert (chat.settings["format"], chat.has_key) == ("slack", False)
            assert "Slack" in (await visitor.get(PAGE)).text
            assert "refused it with status 401" in (await visitor.post(f"{PAGE}/chat/test")).text
            assert hook.wrong[-1] == "none", "which checks signatures"
            signed = slack | {"format": "", "version": "1"}
            refused = await visitor.post(f"{PAGE}/channels/{chat.id}", signed)
            assert "needs a secret" in unescape(refused.text)
            member = await place.visitor_of(await lite.person())
            for try_path in (new, path):
                assert (await member.post(try_path, typed)).status == 403
    audit = await lite.projects.audit(SYSTEM, None, AuditFilter())
    actions = [each.action for each in reversed(audit) if each.subject == "webhook:pager"]
    assert actions == [
        f"configuration.{word}" for word in ("create", "change", "disable", "enable", "delete")
    ]
    assert not any(secret in str(each) or SECRET in str(each) for each in audit)


async def every(made: Market) -> Sequence[EntryView]:
    return await made.services.configuration.every(SYSTEM)


async def of(made: Market, name: str) -> EntryView:
    [found] = [each for each in await every(made) if each.name == name]
    return found


async def noted(world: World) -> list[dict[str, str]]:
    """Details of the audit entries of tests, oldest first."""
    entries = await world.projects.audit(SYSTEM, None, AuditFilter())
    return [dict(each.details) for each in reversed(entries) if each.action == "alerts.test"]
