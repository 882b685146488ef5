"""Contents of requests: kept only while a project says so, seen only by its own people.

Operators of the service see those of their own projects, like everybody else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from causerie.accounts.audit import difference, entry
from causerie.accounts.authorization import Clock, no_such, reach, require, visible_project
from causerie.accounts.people import Actor
from causerie.accounts.ports import AccountStore
from causerie.accounts.recording import LONGEST_DAYS, Recording
from causerie.accounts.rights import Action, Extent
from causerie.errors import InvalidRequest

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class Recordings:
    """Switches it on and off, and shows what was kept."""

    def __init__(self, store: AccountStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def keep(self, actor: Actor, project_id: str, days: int | None) -> None:
        """Keep what is said for so many days; with ``None`` not any more, and nothing of before.

        Fewer days hold for what was kept before too, more do not. Raises :class:`InvalidRequest`.
        """
        if days is not None and not 1 <= days <= LONGEST_DAYS:
            raise InvalidRequest(
                f"Contents are kept for 1 to {LONGEST_DAYS} days, or not at all.", param="days"
            )
        now = self._clock()
        async with self._store.writing() as repositories:
            project = await visible_project(repositories, actor, project_id, Action.RECORDING_SET)
            await repositories.projects.set_recording(project_id, days)
            if days is None:
                await repositories.recordings.forget(project_id)
            else:
                await repositories.recordings.shorten(project_id, timedelta(days=days))
            await repositories.keys.announce(f"project:{project_id}", now)
            said = difference(project.recording_days or "off", days or "off")
            await repositories.audit.add(
                entry(now, actor, "project.recording", project_id, project_id, days=said)
            )

    async def see(self, actor: Actor, project_id: str, id: str) -> Recording:
        """Return the contents of one request.

        Raises :class:`Forbidden`, and :class:`NotFound` where it is not kept.
        """
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id)
            found = (
                await repositories.recordings.find(id, self._clock()) if _ID.fullmatch(id) else None
            )
            if found is not None and found.project_id != project_id:
                found = None
            whose = found.user_id if found is not None else actor.id
            await require(repositories, actor, Action.CONTENTS_SEE, project_id, made_by=whose)
        if found is None:
            raise no_such("recording")
        return found

    async def kept(self, actor: Actor, project_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Of these requests those whose contents there are for this actor to see."""
        async with self._store.reading() as repositories:
            found = await reach(repositories, actor, Action.CONTENTS_SEE, project_id)
            if found is Extent.NO or not ids:
                return frozenset()
            users = await repositories.recordings.users(project_id, ids, self._clock())
        return frozenset(
            id for id, user in users.items() if found is Extent.ALL or user == actor.id
        )

    async def search(
        self, actor: Actor, project_id: str, ids: Sequence[str], text: str
    ) -> frozenset[str]:
        """Return which of these requests contain the text, in any case, and may be seen.

        What is encrypted cannot be searched by the database, so each one is decrypted.
        Raises :class:`Forbidden` where the actor may see none.
        """
        async with self._store.reading() as repositories:
            await visible_project(repositories, actor, project_id)
            found = await reach(repositories, actor, Action.CONTENTS_SEE, project_id)
            if found is Extent.NO:
                await require(repositories, actor, Action.CONTENTS_SEE, project_id)
            kept = await repositories.recordings.several(project_id, ids, self._clock())
        seen = [each for each in kept if found is Extent.ALL or each.user_id == actor.id]
        return await asyncio.to_thread(_containing, seen, text)


def _containing(kept: Sequence[Recording], text: str) -> frozenset[str]:
    """They are JSON, so the text is compared as a string there is written."""
    wanted = msgspec.json.encode(text).decode()[1:-1].casefold()
    return frozenset(
        each.id
        for each in kept
        if wanted in each.request.casefold() or wanted in each.reply.casefold()
    )
