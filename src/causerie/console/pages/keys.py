"""API keys: the list, a new one, its one moment with its secret, changes and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from causerie.accounts.authorization import no_such
from causerie.accounts.issuing import NewKey
from causerie.accounts.keys import ApiKey, Purpose
from causerie.accounts.rights import Action
from causerie.accounts.spending import SpendingReader
from causerie.accounts.summaries import DAYS
from causerie.console.bounds_form import CHOICES
from causerie.console.key_form import ENDS, KeyForm
from causerie.console.pages.project import heirs
from causerie.console.paging import page_of
from causerie.console.ports import DoorView, ServiceView
from causerie.console.request_context import RequestContext
from causerie.console.snippets import management_snippets, snippets
from causerie.errors import InvalidRequest, ServiceError
from causerie.protocol.numbers import money

GRACES = (("0", "now"), ("1", "in 1 hour"), ("24", "in 24 hours"), ("168", "in 7 days"))
_HOURS: Mapping[str, int] = MappingProxyType({key: int(key) for key, _ in GRACES})
_NO_MODEL = "MODEL"


class KeysPages:
    """The keys of a project."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def list(self, context: RequestContext) -> None:
        view = await context.project()
        project_id, now = view.project.id, context.services.clock()
        keys = await context.accounts.keys.of(context.actor, project_id)
        last_used = await context.accounts.usage.last_used(context.actor, project_id)
        costs = await context.accounts.summaries.costs_of_keys(context.actor, project_id)
        page = page_of(
            keys,
            context.query,
            lambda key: (key.name, key.id, _holder(key)),
            {
                "name": lambda key: key.name.casefold(),
                "state": lambda key: key.state(now),
                "cost": lambda key: costs.get(key.id, Decimal(0)),
                "used": lambda key: last_used.get(key.id),
                "since": lambda key: key.created_at,
            },
        )
        reader = SpendingReader(context.accounts.usage, context.actor, project_id, now)
        await context.show(
            "keys/list.html",
            page=page,
            spending=await reader.of_keys({key.id: key.bounds.budgets for key in page.items}),
            costs=costs,
            days=DAYS,
            last_used=last_used,
            archived=view.project.archived_at is not None,
        )

    async def new(self, context: RequestContext) -> None:
        await context.project()
        await context.check_right(Action.KEYS_CREATE)
        await context.show("keys/new.html", **self._choices(KeyForm()))

    async def create(self, context: RequestContext) -> None:
        """Make it, and show its secret once."""
        project_id = (await context.project()).project.id
        form = KeyForm.typed(context.form)
        try:
            context.check_form()
            draft = form.draft(context.services.clock())
            made = await context.accounts.keys.create(context.actor, project_id, draft)
        except ServiceError as problem:
            await context.show_problem("keys/new.html", problem, **self._choices(form))
            return
        await self._reveal(context, made, old_ends=None)

    async def show(self, context: RequestContext) -> None:
        key = await self._asked(context, Action.KEYS_EDIT)
        await context.show("keys/edit.html", key=key, **self._choices(KeyForm.of(key)))

    async def edit(self, context: RequestContext) -> None:
        key = await self._key(context)
        form = KeyForm.typed(context.form)
        try:
            context.check_form()
            change = form.edit(key, context.services.clock())
            await context.accounts.keys.edit(context.actor, key.id, change)
        except ServiceError as problem:
            await context.show_problem("keys/edit.html", problem, key=key, **self._choices(form))
            return
        _back(context, key, "key-saved")

    async def ask_rotation(self, context: RequestContext) -> None:
        """Ask for the time that the old secret stays valid."""
        key = await self._asked(context, Action.KEYS_ROTATE)
        await context.show("keys/rotate.html", key=key, graces=GRACES)

    async def rotate(self, context: RequestContext) -> None:
        """A new secret, shown once."""
        key = await self._key(context)
        hours = _HOURS.get(context.form.get("grace"))
        if hours is None:
            raise InvalidRequest("Choose when the old secret expires.", param="grace")
        made = await context.accounts.keys.rotate(context.actor, key.id, timedelta(hours=hours))
        await self._reveal(
            context, made, old_ends=context.services.clock() + timedelta(hours=hours)
        )

    async def ask_transfer(self, context: RequestContext) -> None:
        """Ask for the person from whom the key derives from now on."""
        key = await self._asked(context, Action.KEYS_TRANSFER)
        await context.show("keys/transfer.html", key=key, **await self._heirs(context, key))

    async def transfer(self, context: RequestContext) -> None:
        """Let it derive from another member."""
        key = await self._key(context)
        try:
            await context.accounts.keys.transfer(context.actor, key.id, context.form.get("to"))
        except InvalidRequest as problem:
            values = await self._heirs(context, key)
            await context.show_problem("keys/transfer.html", problem, key=key, **values)
            return
        _back(context, key, "key-transferred")

    async def ask_deletion(self, context: RequestContext) -> None:
        await context.show("keys/delete.html", key=await self._asked(context, Action.KEYS_DELETE))

    async def delete(self, context: RequestContext) -> None:
        key = await self._key(context)
        await context.accounts.keys.delete(context.actor, key.id)
        _back(context, key, "key-deleted")

    async def disable(self, context: RequestContext) -> None:
        key = await self._key(context)
        await context.accounts.keys.disable(context.actor, key.id)
        _back(context, key, "key-disabled")

    async def enable(self, context: RequestContext) -> None:
        """Let it work again."""
        key = await self._key(context)
        await context.accounts.keys.enable(context.actor, key.id)
        _back(context, key, "key-enabled")

    async def _heirs(self, context: RequestContext, key: ApiKey) -> dict[str, Any]:
        return {"heirs": await heirs(context, key.project_id)}

    async def _key(self, context: RequestContext) -> ApiKey:
        view = await context.project()
        key = await context.accounts.keys.see(context.actor, context.params["key"])
        if key.project_id != view.project.id:
            raise no_such("key")
        return key

    async def _asked(self, context: RequestContext, action: Action) -> ApiKey:
        """The key that a form is about, for whoever may send it."""
        key = await self._key(context)
        await context.check_right(action, key.person)
        if key.purpose is Purpose.MANAGEMENT:
            await context.check_right(Action.MANAGEMENT_KEYS)
        return key

    def _choices(self, form: KeyForm) -> dict[str, Any]:
        """Return the form's choices, and a key's values that the service no longer offers."""
        doors = [door.name for door in self._service_view.doors()]
        models = [str(entry["id"]) for entry in self._service_view.models()]
        limited = [row["model"] for row in (*form.rows.limits, *form.rows.budgets) if row["model"]]
        return {
            "form": form,
            "doors": [*doors, *sorted((form.doors or frozenset()) - set(doors))],
            "models": [
                *models,
                *sorted(((form.models or frozenset()) | set(limited)) - set(models)),
            ],
            "ends": ENDS,
            "choices": CHOICES,
        }

    def _first_request(self, key: ApiKey, doors: Sequence[DoorView]) -> tuple[DoorView | None, str]:
        """Return a door, and a model behind it that the key may use."""
        usable = [
            (door, entry)
            for door in doors
            for entry in self._service_view.models(door.name)
            if key.models is None or entry["id"] in key.models
        ]
        if not usable:
            return None, _NO_MODEL
        door, entry = min(usable, key=lambda pair: _reluctance(pair[1]))
        return door, str(entry["id"])

    async def _reveal(
        self, context: RequestContext, made: NewKey, *, old_ends: datetime | None
    ) -> None:
        key, credential = made.key, made.credential
        doors = [
            door
            for door in self._service_view.doors()
            if key.doors is None or door.name in key.doors
        ]
        first, model = self._first_request(key, doors)
        doors.sort(key=lambda door: door != first)
        bases = [(door.name, context.base + door.prefix) for door in doors]
        shown = snippets(bases[0][1], credential, model) if bases else ()
        if key.purpose is Purpose.MANAGEMENT:
            bases, shown = [], management_snippets(context.base, credential, key.project_id)
        await context.show(
            "keys/made.html",
            key=key,
            credential=credential,
            bases=bases,
            snippets=shown,
            old_ends=old_ends,
        )


def _reluctance(entry: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return the rank of a model for a first request: a free one first, a wildcard last."""
    pricing = entry.get("pricing") or {}
    return str(entry["id"]).endswith("*"), any(money(price) for price in pricing.values())


def _holder(key: ApiKey) -> str:
    """The name of the person that a key derives from."""
    return key.person_status.name if key.person_status else ""


def _back(context: RequestContext, key: ApiKey, done: str) -> None:
    context.go(f"/projects/{key.project_id}/keys", done=done)
