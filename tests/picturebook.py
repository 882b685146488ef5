"""Subjects of pictures: every page of the console, and the steps to those that need some."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from accountkit import PASSWORD, World
from consolekit import Place
from ledgerkit import record
from marketkit import UGLY, UGLY_PROVIDERS, Fair
from pageskit import LONG, Team
from playwright.async_api import Locator, Page, expect

from causerie.access.allowed import Access, AccessRule
from causerie.errors import RateLimited, UpstreamFailed
from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets, Unit
from causerie.hosted.accounts.people import SYSTEM, Project, Role, User, actor_of
from causerie.hosted.accounts.records import Recording
from causerie.hosted.store.usage import SqlUsage
from causerie.http.api import RequestLimits
from causerie.protocol.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
)
from causerie.routing.target_state import TargetStatus

_THOUGHT = """The coast redwood is the tallest *living* species. I should compare:

1. Hyperion, about 116 m
2. Menara, a yellow meranti, about 101 m

The question is about neighbours, so a table fits."""
_PROSE = """The **coast redwood** called Hyperion, at about 116 metres. Its rivals:

| Tree | Kind | Metres |
|:--|:--|--:|
| Hyperion | Coast redwood | 116 |
| Menara | Yellow meranti | 101 |
| Centurion | Mountain ash | 100 |

To sort such a list yourself:

```python
trees = sorted(trees, key=lambda tree: tree.height, reverse=True)
```
"""


class Broken(Fair):
    """A service that has a bug, where the picture wants one."""

    broken = False
    file: Path
    """The configuration file of its operations."""

    def models(
        self, door: str | None = None, rules: Sequence[AccessRule] = ()
    ) -> Sequence[Mapping[str, Any]]:
        if self.broken:
            raise RuntimeError("this picture is of a bug")
        return super().models(door, rules)


@dataclass(frozen=True, slots=True)
class Scene:
    """Content of the pictures: a project at work, an empty one, and somebody new."""

    place: Place
    service_view: Broken
    team: Team
    empty: Project
    operator: User
    newcomer: User
    key: str
    recorded: str

    @property
    def world(self) -> World:
        return self.place.world


Go = Callable[[Page, str, Scene], Awaitable[None]]
"""The way to a picture, from a page at the console's root."""


async def furnished(place: Place, service_view: Broken, team: Team) -> Scene:
    """Keys, bounds, invitations and contents of every look."""
    world = place.world
    operator = await world.person("ada.operator", operator=True, password=PASSWORD)
    await world.join(team.project, operator, Role.OWNER)
    empty = await world.projects.create(SYSTEM, "Nothing here yet")
    await world.join(empty, operator, Role.OWNER)
    newcomer = await world.person("newcomer", password=PASSWORD)
    key = await _keys(world, team)
    await ranked(world, team)
    await _tagged(world, team)
    await world.credits.put(SYSTEM, empty.id, Decimal(25), "paid by Stripe", "stripe:pi_3OqXy7")
    await world.credits.put(SYSTEM, empty.id, Decimal("-4.9625"), "Refund of order 1042")
    return Scene(
        place,
        service_view,
        team,
        empty,
        operator,
        newcomer,
        key,
        await _recorded(world, team, operator),
    )


async def _keys(world: World, team: Team) -> str:
    project, owner = team.project, team.owner
    await world.projects.set_bounds(
        SYSTEM,
        project.id,
        LimitsAndBudgets(
            (
                Limit("", requests_per_minute=600, tokens_per_minute=200_000, concurrent=20),
                Limit(LONG, requests_per_minute=30),
            ),
            (
                Budget(Decimal(50)),
                Budget(Decimal(2_000_000), BudgetPeriod.WEEK, Unit.TOKENS, "small"),
            ),
        ),
    )
    accounts = world.accounts
    few = Access(frozenset({"small", "org/*"}), completion_price=Decimal("2.50"))
    await accounts.access.set(SYSTEM, few, project.id)
    await accounts.operator_keys.create(SYSTEM, "Provisioning", frozenset({"people"}))
    await accounts.operator_keys.create(SYSTEM, "Terraform")
    await accounts.scope_budgets.set(SYSTEM, "tag", "search", [Budget(Decimal(40), soft=True)])
    await accounts.scope_budgets.set(SYSTEM, "provider", "north", [Budget(Decimal(900))])
    for person in (owner, team.member):
        bounds = LimitsAndBudgets((Limit("", requests_per_minute=120),), (Budget(Decimal(25)),))
        await world.person_bounds.set(SYSTEM, person.id, bounds)
    await world.projects.invite(actor_of(owner), project.id, Role.MEMBER, email="new@example.org")
    await world.users.invite(SYSTEM, email="someone@example.org")
    made = await world.key(
        project, owner, name="Nightly report of the quarter, by region and by product line",
        bounds=LimitsAndBudgets((Limit("", requests_per_minute=60),), (Budget(Decimal(25)),)),
        expires_at=world.now + timedelta(days=9),
    )  # fmt: skip
    small = LimitsAndBudgets((), (Budget(Decimal(1)),))
    stopped = await world.key(project, owner, name="Old laptop", bounds=small)
    await world.keys.disable(actor_of(owner), stopped.key.id)
    await world.key(project, team.member, name="Notebook of the team")
    await world.key(project, owner, name="Trial", expires_at=world.now + timedelta(seconds=1))
    world.later(minutes=1)
    return made.key.id


async def ranked(world: World, team: Team) -> None:
    """Requests for models of the catalog, so that they have ranks."""
    project = await world.projects.create(SYSTEM, "Public catalog")
    made = []
    served = {
        "qwen/qwen3-8b": "north/Qwen/Qwen3-8B",
        "acme/iris-large": "north/iris",
        "qwen/qwen3-8b:free": "causerie/qwen3-8b-here",
    }
    for rank, (model, target) in enumerate(served.items(), 1):
        for day in range(0, 40, rank):
            at = int((world.now - timedelta(days=day)).timestamp()) * 1_000_000
            tokens = 90_000 // rank - 700 * day
            made.append(
                record(
                    project=project.id,
                    user=team.owner.id,
                    at=at,
                    model=model,
                    served_by=target,
                    completion=tokens,
                )
            )
    await SqlUsage(world.database).append(made)


def many_targets() -> Sequence[TargetStatus]:
    """Three hundred targets of real providers, most of them up."""
    made = []
    for n in range(300):
        provider, (model, _) = UGLY_PROVIDERS[n % 6], UGLY[n % 4]
        state = "down" if n % 97 == 13 else "half_open" if n % 131 == 7 else "up"
        reason = "" if state == "up" else "upstream_timeout"
        name = f"{provider}/{model}-{n:03}"
        made.append(TargetStatus(name, state, n % 5, 0 if state == "up" else 6, 0.0, reason))
    return made


def real_catalog() -> str:
    """Return the configuration of providers and catalog models with long names and prices."""
    parts = [
        f'[[providers]]\nname = "{name}"\nbase_url = "http://127.0.0.1:9/v1"\n'
        for name in UGLY_PROVIDERS
    ]
    for id, name in UGLY:
        parts.append(f'[[catalog]]\nid = "{id}"\nname = "{name}"\n')
        parts += [
            f'[[catalog.endpoints]]\nprovider = "{provider}"\nmodel = "{id}"\n'
            'price = { prompt = "0.0631125", completion = "1.63625" }\n'
            'quantization = "fp8"\nkeeps_data = false\n'
            for provider in UGLY_PROVIDERS
        ]
    return "\n".join(["", *parts]).replace("{ prompt", "{{ prompt").replace('5" }', '5" }}')


def long_list() -> Sequence[dict[str, Any]]:
    """Models of a provider with many, some without a price."""
    authors = ("vendor", "north-labs", "an-organisation-with-a-long-name")
    ugly = [
        {
            "id": id,
            "context_length": 131_072,
            "pricing": {"prompt": "6.31125e-8", "completion": "1.63625e-6"},
        }
        for id, _ in UGLY
    ]
    return ugly + [
        {
            "id": f"{authors[n % 3]}/model-{n}",
            "name": f"Model {n}",
            "context_length": 8192 * (1 + n % 7),
            **({"pricing": {"prompt": f"{n}e-8", "completion": f"{3 * n}e-8"}} if n % 5 else {}),
        }
        for n in range(1, 43)
    ]


async def _tagged(world: World, team: Team) -> None:
    """Requests whose client named a tag."""
    made = []
    for rank, tag in enumerate(("checkout", "support-bot", "a/b-test-of-the-spring-2026"), 1):
        for day in range(0, 28, rank):
            at = int((world.now - timedelta(days=day, hours=rank)).timestamp()) * 1_000_000
            cost = 40_000_000 // rank
            made.append(
                record(project=team.project.id, user=team.owner.id, at=at, tag=tag, cost=cost)
            )
    await SqlUsage(world.database).append(made)


async def _recorded(world: World, team: Team, user: User) -> str:
    """A request whose contents are kept; gives its id."""
    await world.recordings.keep(actor_of(user), team.project.id, 7)
    at = int(world.now.timestamp()) * 1_000_000
    usage = record(
        project=team.project.id,
        user=user.id,
        at=at,
        key="",
        request_id="req-said",
        cache_miss="system prompt changed at messages[0]",
    )
    await SqlUsage(world.database).append([usage])
    said = [{"role": "user", "content": "What is the tallest tree?"}]
    asked = msgspec.json.encode({"messages": said}).decode()
    answer = {"choices": [{"message": {"role": "assistant", "content": "A coast redwood."}}]}
    told = msgspec.json.encode(answer).decode()
    kept = Recording(usage.id, team.project.id, user.id, world.now, asked, False, told, False)
    async with world.store.writing() as repositories:
        await repositories.recordings.put([kept])
    return usage.id


def outside() -> Mapping[str, Go]:
    """Return the pages for a visitor without a sign-in."""
    return {
        "front": at("/"),
        "sign-in": at("/sign-in"),
        "sign-in-wrong": _wrong_password,
        "sign-in-code": at("/sign-in/code"),
        "sign-up": at("/sign-up"),
        "link": at("/link"),
        "link-wrong": _wrong_link,
        "link-account": _account,
        "link-password": _new_password,
        "session-ended": _session_ended,
        "missing-outside": at("/no-such-page"),
        "catalog": at("/catalog"),
        "catalog-nothing": at("/catalog?q=nothing-is-called-so"),
        "catalog-model": at("/catalog/qwen/qwen3-8b"),
        "catalog-quiet": at("/catalog/zeta/mystery"),
        "catalog-providers": at("/providers"),
        "catalog-provider": at("/providers/north"),
        "status": at("/status"),
        "rankings": at("/rankings?period=month"),
        "public-chat": at("/catalog/qwen/qwen3-8b:free/chat"),
        "rankings-providers": at("/rankings?period=month&by=provider"),
        "catalog-compare-four": at("/catalog/compare?" + "&".join(f"model={id}" for id, _ in UGLY)),
        "catalog-compare": at("/catalog/compare?model=qwen/qwen3-8b&model=acme/iris-large"),
    }


def inside(scene: Scene) -> Mapping[str, Go]:
    """Return the pages for an operator who is in projects."""
    base, bare = f"/projects/{scene.team.project.id}", f"/projects/{scene.empty.id}"
    key, member = f"{base}/keys/{scene.key}", f"{base}/members/{scene.team.member.id}"
    people = f"/operator/users/{scene.team.owner.id}"
    paths = {
        "profile": "/profile",
        "overview": f"{base}/overview",
        "overview-new": f"{bare}/overview",
        "keys": f"{base}/keys",
        "keys-empty": f"{bare}/keys",
        "keys-new": f"{base}/keys/new",
        "keys-edit": key,
        "keys-rotate": f"{key}/rotate",
        "keys-transfer": f"{key}/transfer",
        "keys-delete": f"{key}/delete",
        "project": base,
        "credits": f"{bare}/credits",
        "credits-none": f"{base}/credits",
        "business": "/operator/business",
        "go": f"/go?project={scene.team.project.id}",
        "project-limits": f"{base}/limits",
        "project-access": f"{base}/access",
        "project-access-change": f"{base}/access/change",
        "project-logging": f"{base}/logging",
        "project-settings": f"{base}/settings",
        "project-bounds": f"{base}/bounds",
        "project-invite": f"{base}/invite",
        "project-member": member,
        "project-remove": f"{member}/remove",
        "project-archive": f"{base}/archive",
        "project-audit": f"{base}/audit",
        "playground": f"{base}/playground",
        "models": f"{base}/models",
        "catalog-inside": "/catalog",
        "usage": f"{base}/usage?range=30d",
        "usage-people": f"{base}/usage?range=30d&by=user&metric=tokens",
        "usage-tags": f"{base}/usage?range=30d&by=tag",
        "usage-empty": f"{bare}/usage",
        "activity": f"{base}/activity?range=30d",
        "activity-empty": f"{bare}/activity",
        "activity-nothing-fits": f"{base}/activity?status=418",
        "activity-said": f"{base}/activity/{scene.recorded}",
        "operator": "/operator",
        "operator-users": "/operator/users",
        "operator-invite": "/operator/invite",
        "operator-user-bounds": f"{people}/bounds",
        "operator-rights": f"{people}/operator",
        "operator-keys": "/operator/keys",
        "operator-key-new": "/operator/keys/new",
        "operator-budgets": "/operator/budgets",
        "operator-budget": "/operator/budgets/edit?kind=tag&name=search",
        "operator-many": "/operator/budgets/many",
        "policies": "/operator/policies",
        "policy-new": "/operator/policies/new",
        "operator-factor": f"{people}/factor/remove",
        "operator-disable": f"{people}/disable",
        "operator-projects": "/operator/projects",
        "operator-new-project": "/operator/projects/new",
        "operator-usage-person": f"/operator/usage?by=project&user={scene.team.owner.id}",
        "operator-usage": "/operator/usage?range=30d&by=project",
        "operator-activity": "/operator/activity?range=30d&failures=yes",
        "operator-audit": "/operator/audit",
        "providers": "/operator/providers",
        "providers-open": "/operator/providers?open=deepinfra",
        "alerts": "/operator/alerts",
        "alert-webhook": "/operator/alerts/channels/new?kind=webhook",
        "alert-email": "/operator/alerts/channels/new?kind=email",
        "providers-of-a-model": "/operator/providers?model=a/m",
        "endpoint": "/operator/providers/north",
        "provider-quiet": "/operator/providers/south",
        "provider-pick": "/operator/providers/add/new",
        "provider-add": "/operator/providers/add/new?known=openrouter",
        "provider-off": "/operator/providers/spare",
        "provider-edit": "/operator/providers/spare/edit",
        "provider-delete": "/operator/providers/spare/delete",
        "provider-no-list": "/operator/providers/north/models",
        "aliases": "/operator/aliases",
        "own-models": "/operator/models",
        "own-model-new": "/operator/models/new",
        "doors": "/operator/doors",
        "door-new": "/operator/doors/new",
        "alias-new": "/operator/aliases/new",
        "catalog-models": "/operator/catalog",
        "provider-models": "/operator/providers/gallery/models",
        "publish": "/operator/providers/gallery/publish?margin=20",
        "publish-no-list": "/operator/providers/north/publish",
        "provider-probe": "/operator/providers/north/probe?model=m",
        "routes": "/operator/explain?model=a/m",
        "missing": "/no-such-page",
        "wrong-query": f"{base}/usage?by=colour",
    }
    ways: dict[str, Go] = {name: at(path) for name, path in paths.items()}
    return ways | {
        "keys-menu": _menu,
        "dialog-new": _dialog_new,
        "dialog-made": _dialog_made,
        "dialog-made-messages": _dialog_made_messages,
        "dialog-made-codex": _dialog_made_codex,
        "keys-made": _made,
        "project-link": _link,
        "activity-opened": _opened,
        "activity-refused": _refused,
        "playground-answer": _answer,
        "playground-accepted": _accepted,
        "playground-presets": _presets,
        "playground-thinking": _thinking,
        "playground-call": _call,
        "playground-refused": _refused_turn,
        "playground-broken": _broken_off,
        "playground-code": _code,
        "playground-code-messages": _code_messages,
        "profile-enrol": _enrol,
        "profile-codes": _codes,
        "profile-remove": at("/profile/factor/remove"),
        "provider-by-hand": _by_hand,
        "provider-wrong": _wrong_provider,
        "provider-asking": _asking,
        "provider-failed": _failed,
        "routes-told": _route,
        "routes-nobody": _no_route,
        "routes-strict": _strict_route,
        "dialog-remove": _dialog_remove,
        "broken": _broken,
    }


def alone() -> Mapping[str, Go]:
    """Return the pages for somebody in no project."""
    return {"start": at("/"), "forbidden": at("/operator/users")}


def at(path: str) -> Go:
    """A page that stands at an address."""

    async def go(page: Page, root: str, _: Scene) -> None:
        await page.goto(root + path, wait_until="load")

    return go


async def _by_hand(page: Page, root: str, scene: Scene) -> None:
    await page.goto(f"{root}/operator/providers/north")
    await page.click("text=Apply the result")
    await expect(page.locator("#by-hand")).to_be_visible()


async def _wrong_provider(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/operator/providers/add/new?known=other")
    await page.fill("[name=name]", "North East")
    await page.fill("[name=base_url]", "nowhere")
    await page.click("summary:has-text('More settings')")
    await page.fill("[name=max_concurrent]", "few")
    await page.fill("[name=more]", '{"colour": "red"}')
    await page.click("#panel .button-main")
    await expect(page.locator("[aria-invalid]").first).to_be_visible()


async def _probe(page: Page, root: str, name: str) -> None:
    await page.goto(f"{root}/operator/providers/{name}")
    await page.locator("#probing .buttons .button").first.click()
    async with page.expect_navigation():  # of an earlier probe there is the same on the page
        await page.click("dialog .button-main")


async def _asking(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/operator/providers/south")
    if not await page.locator("#probe-progress").count():
        await _probe(page, root, "south")
    await expect(page.locator("#probe-progress")).to_be_visible()


async def _failed(page: Page, root: str, _: Scene) -> None:
    await _probe(page, root, "north")
    await expect(page.locator("#probing [role=alert]")).to_be_visible()


async def _route(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/operator/explain?model=a/m")
    await page.click(".explain .button-main")
    await expect(page.locator("#told")).to_be_visible()


async def _no_route(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/operator/explain?model=a/m")
    await page.check("[name=tools]")
    await page.click("summary:has-text('preferences')")
    await page.check("[name=strict]")
    await page.fill("[name=max_prompt]", "0.3")
    await page.click(".explain .button-main")
    await expect(page.locator("#told")).to_be_visible()


async def _strict_route(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/operator/explain?model=a/m")
    body = '{"model": "a/m", "messages": [{"role": "user", "content": "Hi"}], "colour": "red"}'
    form = page.locator("form:has([name=body])")
    await form.locator("[name=from][value=body]").check()
    await form.locator("[name=body]").fill(body)
    await form.locator("[name=reject]").check()
    await form.locator(".button-main").click()
    await expect(page.locator("#told")).to_be_visible()


async def _dialog_remove(page: Page, root: str, scene: Scene) -> None:
    """Of somebody who owns a key."""
    await page.goto(f"{root}/projects/{scene.team.project.id}")
    await page.locator(f"a[href$='/members/{scene.team.member.id}/remove']").click()
    await expect(page.locator("dialog [name=keys_to]")).to_be_visible()


async def _wrong_password(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/sign-in")
    await page.fill("[name=email]", "ada@example.org")
    await page.fill("[name=password]", "not the password")
    await page.click("form .button-main")
    await expect(page.locator("[role=alert]")).to_be_visible()


async def _follow(page: Page, root: str, token: str) -> None:
    await page.goto(f"{root}/link#{token}")


async def _wrong_link(page: Page, root: str, _: Scene) -> None:
    await _follow(page, root, "no-such-link")
    await expect(page.locator("[role=alert]")).to_be_visible()


async def _account(page: Page, root: str, scene: Scene) -> None:
    actor = actor_of(scene.operator)
    made = await scene.world.projects.invite(actor, scene.team.project.id, Role.MEMBER)
    await _follow(page, root, made.token)
    await expect(page.locator("[name=password]")).to_be_visible()


async def _new_password(page: Page, root: str, scene: Scene) -> None:
    made = await scene.world.users.reset_link(SYSTEM, scene.newcomer.id)
    await _follow(page, root, made.token)
    await expect(page.locator("[name=password]")).to_be_visible()


async def _keys_page(page: Page, root: str, scene: Scene) -> None:
    await page.goto(f"{root}/projects/{scene.team.project.id}/keys")


async def _menu(page: Page, root: str, scene: Scene) -> None:
    await _keys_page(page, root, scene)
    await page.locator("table summary").first.click()


async def _dialog_new(page: Page, root: str, scene: Scene) -> None:
    await _keys_page(page, root, scene)
    await page.click("text=Create key")
    await page.click("dialog summary:has-text('Budget')")
    await page.click("text=Add a budget")


async def _dialog_made(page: Page, root: str, scene: Scene) -> None:
    await _dialog_new(page, root, scene)
    await page.fill("dialog [name=name]", "From a picture")
    await page.fill("dialog [name=budget_amount]", "12.50")
    await page.click("dialog .button-main")
    await page.wait_for_selector("#credential")


async def _dialog_made_messages(page: Page, root: str, scene: Scene) -> None:
    await _dialog_made(page, root, scene)
    await page.click("#tab-messages")
    await page.click("#tab-messages-python")


async def _dialog_made_codex(page: Page, root: str, scene: Scene) -> None:
    await _dialog_made(page, root, scene)
    await page.click("#tab-codex")


async def _made(page: Page, root: str, scene: Scene) -> None:
    await page.goto(f"{root}/projects/{scene.empty.id}/keys/new")
    await page.fill("[name=name]", "Reports")
    await page.check("[name=purpose][value=management]")
    await page.click("#panel .button-main")
    await page.wait_for_selector("#credential")
    made = await scene.world.keys.of(SYSTEM, scene.empty.id)
    for each in made:
        await scene.world.keys.delete(SYSTEM, each.id)


async def _session_ended(page: Page, root: str, scene: Scene) -> None:
    """A form of a page that was opened before."""
    await page.goto(f"{root}/sign-in")
    path = f"{root}/projects/{scene.empty.id}/keys/new"
    form = page.locator("form")
    await form.evaluate("(form, path) => form.setAttribute('action', path)", path)
    await form.evaluate("form => { form.replaceChildren(); form.submit(); }")
    await expect(page.locator("#panel")).to_be_visible()


async def _link(page: Page, root: str, scene: Scene) -> None:
    await page.goto(f"{root}/projects/{scene.empty.id}/invite")
    await page.click("#panel .button-main")
    await expect(page.locator(".secret")).to_be_visible()


async def _opened(page: Page, root: str, scene: Scene) -> None:
    await page.goto(f"{root}/projects/{scene.team.project.id}/activity?request_id=req-said")
    await expect(page.locator("#contents, .request-contents pre").first).to_be_visible()


async def _refused(page: Page, root: str, scene: Scene) -> None:
    base = f"{root}/projects/{scene.team.project.id}"
    await page.goto(f"{base}/activity?range=30d&failures=yes&status=502")
    await page.locator("details.request summary").first.click()


async def _playground(page: Page, root: str, scene: Scene) -> None:
    await page.goto(f"{root}/projects/{scene.team.project.id}/playground")


async def _ask(page: Page, text: str) -> Locator:
    """Gives the answer, when it has ended."""
    await page.fill("#draft", text)
    await page.keyboard.press("Enter")
    turn = page.locator(".turn-assistant").last
    await expect(turn.locator("footer")).to_be_visible()
    return turn


@contextmanager
def _told(scene: Scene, *script: Event | Exception) -> Iterator[None]:
    """Answers so; as before afterwards."""
    pipeline = scene.service_view.pipeline
    pipeline.script, before = script, pipeline.script
    try:
        yield
    finally:
        pipeline.script = before


async def _answer(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    await _ask(page, "Say something.")


async def _accepted(page: Page, root: str, scene: Scene) -> None:
    """A stream that has started, and whose first token is still to come."""
    service_view = scene.service_view
    service_view.pipeline.prefill, before = [asyncio.Event()], service_view.limits
    service_view.limits = RequestLimits(first_byte_seconds=0.01)
    try:
        await _playground(page, root, scene)
        await page.fill("#draft", "What does this report say? " * 40)
        await page.keyboard.press("Enter")
        await expect(page.locator(".turn-assistant .badge")).to_contain_text("Accepted")
    finally:
        service_view.pipeline.prefill, service_view.limits = (), before


async def _presets(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    for name in ("Brief answers", f"Extraction of invoices, with {LONG}"):
        await page.locator("#presets summary").click()
        await page.fill("#preset-name", name[:60])
        await page.click("#presets form button")
    await page.locator("#presets summary").click()


async def _thinking(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    used = Usage(prompt=1234, completion=180, reasoning=96, cached=1024)
    with _told(scene, ReasoningDelta(_THOUGHT), TextDelta(_PROSE), Finished("stop"), used):
        turn = await _ask(page, "What is the tallest tree, and how do its neighbours compare?")
    await turn.locator(".thought summary").click()


async def _call(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    if await page.locator(".play-switch").is_visible():
        await page.locator(".play-switch").click()
    await page.get_by_text("Tools", exact=True).click()
    tools = [{"type": "function", "function": {"name": "weather"}}]
    await page.fill("[name=tools]", msgspec.json.format(msgspec.json.encode(tools)).decode())
    called = (
        ReasoningDelta("Two towns, so two calls."),
        ToolCallStarted(0, "call_1", "weather"),
        ToolCallDelta(0, '{"city": "Oslo", "days": 3}'),
        ToolCallStarted(1, "call_2", "weather"),
        ToolCallDelta(1, '{"city": "Bergen", "days": 3}'),
    )
    with _told(scene, *called, Finished("tool_calls"), Usage(prompt=210, completion=48)):
        await _ask(page, "Where will it rain less, in Oslo or in Bergen?")
    with _told(scene, TextDelta("In Oslo."), Finished("stop"), Usage(prompt=260, completion=3)):
        for field in await page.locator(".call textarea").all():
            await field.fill("12 degrees, rain")
        await page.click("[data-do=answer] >> visible=true")
        await expect(page.locator(".turn-assistant").last).to_contain_text("In Oslo.")
    with _told(scene, *called[1:3], Finished("tool_calls"), Usage(prompt=300, completion=24)):
        await _ask(page, "And tomorrow?")


async def _refused_turn(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    pipeline = scene.service_view.pipeline
    pipeline.prefill = [RateLimited("The project may make 60 requests per minute.")]
    try:
        await _ask(page, "Say something.")
    finally:
        pipeline.prefill = ()


async def _broken_off(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    failure = UpstreamFailed("Every provider of the model that was asked has failed.")
    with _told(scene, TextDelta(_PROSE[:160]), failure):
        await _ask(page, "What is the tallest tree?")


async def _code(page: Page, root: str, scene: Scene) -> None:
    await _playground(page, root, scene)
    await page.click("text=View code")


async def _code_messages(page: Page, root: str, scene: Scene) -> None:
    await _code(page, root, scene)
    await page.click("#tab-messages")
    await page.click("#tab-messages-python")


async def _enrol(page: Page, root: str, _: Scene) -> None:
    await page.goto(f"{root}/profile")
    await page.click("text=Set up")
    await expect(page.locator(".qr")).to_be_visible()


async def _codes(page: Page, root: str, scene: Scene) -> None:
    await _enrol(page, root, scene)
    secret = await page.text_content("#factor-secret") or ""
    step = int(scene.world.now.timestamp()) // 30
    await page.fill("[name=code]", passwords.totp_code_at(secret, step))
    await page.click("button:has-text('Turn on')")
    await expect(page.locator("#codes")).to_be_visible()
    async with scene.world.store.writing() as repositories:
        await repositories.factors.remove(scene.operator.id)


async def _broken(page: Page, root: str, scene: Scene) -> None:
    scene.service_view.broken = True
    try:
        await page.goto(f"{root}/projects/{scene.team.project.id}/playground")
    finally:
        scene.service_view.broken = False
