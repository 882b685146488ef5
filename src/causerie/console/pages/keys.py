"""API keys: the list, a new one, its one moment with its secret, changes and its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from causerie.accounts.guard import no_such
from causerie.accounts.issuing import NewKey
from causerie.accounts.keys import ApiKey, Purpose
from causerie.accounts.rights import Action
from causerie.accounts.spending import SpendingReader
from causerie.console.bounds_form import CHOICES
from causerie.console.key_form import ENDS, KeyForm
from causerie.console.pages.project import heirs
from causerie.console.ports import House
from causerie.console.snippets import management_snippets, snippets
from causerie.console.visit import Visit
from causerie.errors import InvalidRequest, ServiceError

GRACES = (("0", "It ends now"), ("1", "1 hour"), ("24", "24 hours"), ("168", "7 days"))
_HOURS: Mapping[str, int] = MappingProxyType({key: int(key) for key, _ in GRACES})
_NO_MODEL = "MODEL"


class KeysPages:
    """The keys of a project."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def list(self, visit: Visit) -> None:
        """All keys, with what they have spent."""
        view = await visit.project()
        project_id, now = view.project.id, visit.desk.clock()
        keys = await visit.accounts.keys.of(visit.actor, project_id)
        reader = SpendingReader(visit.accounts.usage, visit.actor, project_id, now)
        await visit.show(
            "keys/list.html",
            keys=keys,
            spending=await reader.of_keys({key.id: key.bounds.budgets for key in keys}),
            last_used=await visit.accounts.usage.last_used(visit.actor, project_id),
            archived=view.project.archived_at is not None,
        )

    async def new(self, visit: Visit) -> None:
        """The form of a new key."""
        await visit.project()
        await visit.check_right(Action.KEYS_CREATE)
        await visit.show("keys/new.html", **self._choices(KeyForm()))

    async def create(self, visit: Visit) -> None:
        """Make it, and show its secret once."""
        project_id = (await visit.project()).project.id
        form = KeyForm.typed(visit.form)
        try:
            visit.check_form()
            draft = form.draft(visit.desk.clock())
            made = await visit.accounts.keys.create(visit.actor, project_id, draft)
        except ServiceError as problem:
            await visit.show_problem("keys/new.html", problem, **self._choices(form))
            return
        await self._reveal(visit, made, old_ends=None)

    async def show(self, visit: Visit) -> None:
        """One key, to be changed."""
        key = await self._asked(visit, Action.KEYS_EDIT)
        await visit.show("keys/edit.html", key=key, **self._choices(KeyForm.of(key)))

    async def edit(self, visit: Visit) -> None:
        """Change it."""
        key = await self._key(visit)
        form = KeyForm.typed(visit.form)
        try:
            visit.check_form()
            change = form.edit(key, visit.desk.clock())
            await visit.accounts.keys.edit(visit.actor, key.id, change)
        except ServiceError as problem:
            await visit.show_problem("keys/edit.html", problem, key=key, **self._choices(form))
            return
        _back(visit, key, "key-saved")

    async def ask_rotation(self, visit: Visit) -> None:
        """How long the old secret goes on."""
        key = await self._asked(visit, Action.KEYS_ROTATE)
        await visit.show("keys/rotate.html", key=key, graces=GRACES)

    async def rotate(self, visit: Visit) -> None:
        """A new secret, shown once."""
        key = await self._key(visit)
        hours = _HOURS.get(visit.form.get("grace"))
        if hours is None:
            raise InvalidRequest("Choose how long the old secret goes on.", param="grace")
        made = await visit.accounts.keys.rotate(visit.actor, key.id, timedelta(hours=hours))
        await self._reveal(visit, made, old_ends=visit.desk.clock() + timedelta(hours=hours))

    async def ask_transfer(self, visit: Visit) -> None:
        """Whom the key derives from from now on."""
        key = await self._asked(visit, Action.KEYS_TRANSFER)
        await visit.show("keys/transfer.html", key=key, **await self._heirs(visit, key))

    async def transfer(self, visit: Visit) -> None:
        """Let it derive from another member."""
        key = await self._key(visit)
        try:
            await visit.accounts.keys.transfer(visit.actor, key.id, visit.form.get("to"))
        except InvalidRequest as problem:
            values = await self._heirs(visit, key)
            await visit.show_problem("keys/transfer.html", problem, key=key, **values)
            return
        _back(visit, key, "key-transferred")

    async def ask_deletion(self, visit: Visit) -> None:
        """Whether it is meant."""
        await visit.show("keys/delete.html", key=await self._asked(visit, Action.KEYS_DELETE))

    async def delete(self, visit: Visit) -> None:
        """End it for good."""
        key = await self._key(visit)
        await visit.accounts.keys.delete(visit.actor, key.id)
        _back(visit, key, "key-deleted")

    async def disable(self, visit: Visit) -> None:
        """Stop it."""
        key = await self._key(visit)
        await visit.accounts.keys.disable(visit.actor, key.id)
        _back(visit, key, "key-disabled")

    async def enable(self, visit: Visit) -> None:
        """Let it work again."""
        key = await self._key(visit)
        await visit.accounts.keys.enable(visit.actor, key.id)
        _back(visit, key, "key-enabled")

    async def _heirs(self, visit: Visit, key: ApiKey) -> dict[str, Any]:
        return {"heirs": await heirs(visit, key.project_id)}

    async def _key(self, visit: Visit) -> ApiKey:
        view = await visit.project()
        key = await visit.accounts.keys.see(visit.actor, visit.params["key"])
        if key.project_id != view.project.id:
            raise no_such("key")
        return key

    async def _asked(self, visit: Visit, action: Action) -> ApiKey:
        """The key that a form is about, for whoever may send it."""
        key = await self._key(visit)
        await visit.check_right(action, key.person)
        if key.purpose is Purpose.MANAGEMENT:
            await visit.check_right(Action.MANAGEMENT_KEYS)
        return key

    def _choices(self, form: KeyForm) -> dict[str, Any]:
        """What the form offers, and what a key has that the service does not any more."""
        doors = [door.name for door in self._house.doors()]
        models = [str(entry["id"]) for entry in self._house.models()]
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

    async def _reveal(self, visit: Visit, made: NewKey, *, old_ends: datetime | None) -> None:
        key, credential = made.key, made.credential
        doors = [
            door for door in self._house.doors() if key.doors is None or door.name in key.doors
        ]
        bases = [(door.name, visit.base + door.prefix) for door in doors]
        models = [str(entry["id"]) for entry in self._house.models()]
        usable = [each for each in models if key.models is None or each in key.models]
        shown = snippets(bases[0][1], credential, (usable or [_NO_MODEL])[0]) if bases else ()
        if key.purpose is Purpose.MANAGEMENT:
            bases, shown = [], management_snippets(visit.base, credential, key.project_id)
        await visit.show(
            "keys/made.html",
            key=key,
            credential=credential,
            bases=bases,
            snippets=shown,
            old_ends=old_ends,
        )


def _back(visit: Visit, key: ApiKey, done: str) -> None:
    visit.go(f"/projects/{key.project_id}/keys", done=done)
