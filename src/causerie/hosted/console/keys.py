"""Pages of API keys: list, form, the only view of a new secret, changes, and deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from causerie.access.allowed import AccessRule
from causerie.errors import InvalidRequest
from causerie.hosted.accounts.authorization import no_such
from causerie.hosted.accounts.issuing import KeyDraft, KeyEdit, NewKey
from causerie.hosted.accounts.keys import ApiKey, Purpose
from causerie.hosted.accounts.people import Action
from causerie.hosted.accounts.spending import DAYS
from causerie.hosted.accounts.usage import By
from causerie.hosted.console.bounds import bounds_fields, offered, typed_bounds
from causerie.hosted.console.fields import Column, FormFields, chosen_fields, listed, page_of
from causerie.hosted.console.playground import management_snippets
from causerie.hosted.console.project import heirs
from causerie.hosted.console.request_context import PREFIX, RequestContext
from causerie.hosted.console.service_view import DoorView
from causerie.hosted.console.words import CHOICES
from causerie.http.pages.snippets import SnippetGroup, first_bodies, request_snippets
from causerie.protocol.numbers import money


def _build_key_form_fields(key: ApiKey) -> FormFields:
    end = key.expires_at
    return FormFields(
        [
            ("name", key.name),
            ("end", "date" if end is not None else "never"),
            ("date", f"{end.astimezone(UTC):%Y-%m-%d}" if end is not None else ""),
            *chosen_fields("doors", key.doors),
            *chosen_fields("models", key.models),
            ("networks", ", ".join(key.networks or ())),
            *bounds_fields(key.bounds),
        ]
    )


def _parse_key_draft(form: FormFields, now: datetime) -> KeyDraft:
    try:
        purpose = Purpose(form.get("purpose") or Purpose.INFERENCE)
    except ValueError as failure:
        words = "A key is for inference or management."
        raise InvalidRequest(words, param="purpose") from failure
    return KeyDraft(purpose=purpose, expires_at=typed_end(form, now), **_parse_key_settings(form))


def _parse_key_edit(form: FormFields, key: ApiKey, now: datetime) -> KeyEdit:
    # An untouched end stays as it is, to the second.
    before = _build_key_form_fields(key)
    same = all(form.get(name) == before.get(name) for name in ("end", "date"))
    expires_at = key.expires_at if same else typed_end(form, now)
    return KeyEdit(expires_at=expires_at, **_parse_key_settings(form))


def _parse_key_settings(form: FormFields) -> dict[str, Any]:
    return {
        "name": form.get("name"),
        "doors": form.chosen("doors"),
        "models": form.chosen("models"),
        "networks": listed(form.get("networks")),
        "bounds": typed_bounds(form),
    }


def typed_end(form: FormFields, now: datetime) -> datetime | None:
    """Return the expiry that was chosen, ``None`` for never; raise :class:`InvalidRequest`."""
    end = form.get("end")
    if end in ("1", "7", "30"):
        return now + timedelta(days=int(end))
    if end != "date":
        return None
    try:
        day = datetime.strptime(form.get("date"), "%Y-%m-%d").date()
    except ValueError as failure:
        words = "Choose the day on which the key expires."
        raise InvalidRequest(words, param="date") from failure
    return datetime.combine(day, time(23, 59, 59), UTC)


async def show_list(context: RequestContext) -> None:
    project_id, now = context.project.id, context.services.clock()
    keys = await context.accounts.keys.of(context.actor, project_id)
    last_used = await context.accounts.usage.last_used(context.actor, project_id)
    costs = await context.accounts.summaries.costs_of_keys(context.actor, project_id)
    columns: Mapping[str, Column] = {
        "name": "name",
        "state": lambda key: key.state(now),
        "cost": lambda key: costs.get(key.id, Decimal(0)),
        "used": lambda key: last_used.get(key.id),
        "since": "created_at",
    }
    page = page_of(keys, context.query, _list_search_texts, columns)
    budgets = {key.id: key.bounds.budgets for key in page.items}
    spending = await context.accounts.usage.spending(context.actor, By.KEY, budgets, project_id)
    shown = {"page": page, "spending": spending, "costs": costs, "last_used": last_used}
    await context.send_page("keys/list.html", days=DAYS, **shown)


def _list_search_texts(key: ApiKey) -> tuple[str, ...]:
    return key.name, key.id, key.person_status.name if key.person_status else ""


async def get_key(context: RequestContext) -> None:
    """Redirect to the form of a new key, or first to sign-in; keep the model in the query."""
    model = f"?model={quote(context.query.get('model'), safe='')}"
    if context.user is None:
        first = "sign-up" if context.services.open_to.sign_up else "sign-in"
        context.go(f"/{first}?next={quote(f'{PREFIX}/get-key{model}', safe='')}")
        return
    project = await context.last_project()
    context.go(f"/projects/{project.id}/keys/new{model}" if project else "/")


async def new(context: RequestContext) -> None:
    await context.check_right(Action.KEYS_CREATE)
    wanted = context.form.get("wanted", context.query.get("model"))
    shown = await _build_key_template_values(context, FormFields())
    await context.send_page("keys/new.html", wanted=wanted, **shown)


async def create(context: RequestContext) -> None:
    project_id = context.project.id
    draft = _parse_key_draft(context.form, context.services.clock())
    made = await context.accounts.keys.create(context.actor, project_id, draft)
    await _show_new_key(context, made, old_ends=None)


async def show(context: RequestContext) -> None:
    key = await _find_key_for(context, Action.KEYS_EDIT)
    shown = await _build_key_template_values(context, _build_key_form_fields(key))
    await context.send_page("keys/edit.html", key=key, **shown)


async def edit(context: RequestContext) -> None:
    key = await _find_key_in_current_project(context)
    change = _parse_key_edit(context.form, key, context.services.clock())
    await context.accounts.keys.edit(context.actor, key.id, change)
    _redirect_to_keys(context, key, "key-saved")


async def ask_rotation(context: RequestContext) -> None:
    key = await _find_key_for(context, Action.KEYS_ROTATE)
    await context.send_page("keys/rotate.html", key=key)


async def rotate(context: RequestContext) -> None:
    key = await _find_key_in_current_project(context)
    hours = context.form.get("grace")
    if hours not in dict(CHOICES["graces"]):
        raise InvalidRequest("Choose when the old secret expires.", param="grace")
    grace = timedelta(hours=int(hours))
    made = await context.accounts.keys.rotate(context.actor, key.id, grace)
    await _show_new_key(context, made, old_ends=context.services.clock() + grace)


async def ask_transfer(context: RequestContext) -> None:
    key = await _find_key_for(context, Action.KEYS_TRANSFER)
    members = await heirs(context, key.project_id)
    await context.send_page("keys/transfer.html", key=key, heirs=members)


async def transfer(context: RequestContext) -> None:
    key = await _find_key_in_current_project(context)
    await context.accounts.keys.transfer(context.actor, key.id, context.form.get("to"))
    _redirect_to_keys(context, key, "key-transferred")


async def ask_deletion(context: RequestContext) -> None:
    key = await _find_key_for(context, Action.KEYS_DELETE)
    await context.send_page("keys/delete.html", key=key)


async def delete(context: RequestContext) -> None:
    key = await _find_key_in_current_project(context)
    await context.accounts.keys.delete(context.actor, key.id)
    _redirect_to_keys(context, key, "key-deleted")


async def switch(context: RequestContext, *, enabled: bool) -> None:
    key, keys = await _find_key_in_current_project(context), context.accounts.keys
    await (keys.enable if enabled else keys.disable)(context.actor, key.id)
    _redirect_to_keys(context, key, "key-enabled" if enabled else "key-disabled")


async def _find_key_in_current_project(context: RequestContext) -> ApiKey:
    key = await context.accounts.keys.see(context.actor, context.params["key"])
    if key.project_id != context.project.id:
        raise no_such("key")
    return key


async def _find_key_for(context: RequestContext, action: Action) -> ApiKey:
    key = await _find_key_in_current_project(context)
    await context.check_right(action, key.person)
    if key.purpose is Purpose.MANAGEMENT:
        await context.check_right(Action.MANAGEMENT_KEYS)
    return key


async def _build_key_template_values(context: RequestContext, stored: FormFields) -> dict[str, Any]:
    rules, form = await context.rules(), context.form or stored
    doors = [door.name for door in context.service_view.doors() if door_allowed(door, rules)]
    gone = sorted((form.chosen("doors") or frozenset()).difference(doors))
    shown = {"form": form, "doors": [*doors, *gone], "rules": rules}
    return shown | offered(context, stored, rules)


def door_allowed(door: DoorView, rules: Sequence[AccessRule]) -> bool:
    return all(each.access.opens(door.name) for each in rules)


def _choose_door_and_model(
    context: RequestContext, key: ApiKey, doors: Sequence[DoorView], rules: Sequence[AccessRule]
) -> tuple[DoorView | None, str]:
    usable = [
        (door, entry)
        for door in doors
        for entry in context.service_view.models(door.name, rules)
        if key.models is None or entry["id"] in key.models
    ]
    if not usable:
        return None, "MODEL"
    wanted, pays = context.form.get("wanted"), not context.overview.bounds.spends_nothing

    def reluctance(pair: tuple[DoorView, Mapping[str, Any]]) -> tuple[bool, ...]:
        id, priced = str(pair[1]["id"]), any(map(money, (pair[1].get("pricing") or {}).values()))
        other = id.partition(":")[0] != wanted.partition(":")[0]
        return id.endswith("*"), priced and not pays, id != wanted, other, priced

    door, entry = min(usable, key=reluctance)
    return door, str(entry["id"])


async def _show_new_key(
    context: RequestContext, new_key: NewKey, *, old_ends: datetime | None
) -> None:
    key, credential, rules = new_key.key, new_key.credential, await context.rules()
    doors = [
        door
        for door in context.service_view.doors()
        if (key.doors is None or door.name in key.doors) and door_allowed(door, rules)
    ]
    first, model = _choose_door_and_model(context, key, doors, rules)
    doors.sort(key=lambda door: door != first)
    bases = [(door.name, context.base + door.prefix) for door in doors]
    code: Sequence[SnippetGroup] = ()
    if key.purpose is Purpose.MANAGEMENT:
        bases, code = [], management_snippets(context.base, credential, key.project_id)
    elif bases:
        code = request_snippets(bases[0][1], credential, model)
    bodies = first_bodies(bases[0][1], model) if bases and first else {}
    shown = {"bases": bases, "code": code, "old_ends": old_ends, "bodies": bodies, "model": model}
    await context.send_page("keys/made.html", key=key, credential=credential, **shown)


def _redirect_to_keys(context: RequestContext, key: ApiKey, notice: str) -> None:
    context.go(f"/projects/{key.project_id}/keys", done=notice)
