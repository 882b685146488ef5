"""Contents of requests, which projects may keep for their members, and the deletion of old data.

Operators of the service see only those of their own projects.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import msgspec
import structlog
from msgspec import Struct, field

from causerie.errors import Forbidden, InvalidRequest, StoreUnavailable
from causerie.hosted.accounts.authorization import (
    AccountService,
    Clock,
    existing,
    parts,
    reach,
    require,
    visible_project,
)
from causerie.hosted.accounts.people import Action, Actor, Extent, Project, RoleColumn
from causerie.hosted.accounts.records import LONGEST_DAYS, Recording, difference
from causerie.hosted.store.accounts import SqlStore
from causerie.hosted.store.operations import SqlRetention
from causerie.metering.ledger import UsageRecord
from causerie.metering.meter import Contents
from causerie.protocol.events import Usage

_AT_ONCE = 20
_EXPORTED = 20  # at once: each may have half a megabyte


class _QueuedContents(Struct):
    usage: UsageRecord
    contents: Contents
    weight: int


class Recorder(Struct):
    """Writes the contents of this process in the background. Enter it in the loop that uses it.

    No reply waits for it. What cannot be written, because the database is unavailable or too much
    waits, is lost, and the log reports the number. ``most`` and ``bytes_left`` limit what waits.
    """

    _store: SqlStore
    most: int = 500
    bytes_left: int = 64 * 1024 * 1024
    _queued_contents: deque[_QueuedContents] = field(default_factory=deque)
    _recordings_waiting: asyncio.Event = field(default_factory=asyncio.Event)
    _is_closing: bool = False
    _writer_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Recorder:
        self._writer_task = asyncio.get_running_loop().create_task(self._write_queued_contents())
        return self

    async def __aexit__(self, *failure: object) -> None:
        """Write the queued contents, then stop."""
        self._is_closing = True
        self._recordings_waiting.set()
        if self._writer_task is not None:
            await asyncio.wait([self._writer_task])
            self._writer_task.result()

    def put(self, usage: UsageRecord, contents: Contents) -> None:
        """Queue the contents of a request to be written, unless too much waits already."""
        weight = contents.weight
        if len(self._queued_contents) >= self.most or weight > self.bytes_left or self._is_closing:
            log.warning("contents are not kept: too much waits", request_id=usage.request_id)
            return
        self.bytes_left -= weight
        self._queued_contents.append(_QueuedContents(usage, contents, weight))
        self._recordings_waiting.set()

    async def _write_queued_contents(self) -> None:
        while True:
            while not self._queued_contents:
                if self._is_closing:
                    return
                self._recordings_waiting.clear()
                await self._recordings_waiting.wait()
            batch = [
                self._queued_contents.popleft()
                for _ in range(min(_AT_ONCE, len(self._queued_contents)))
            ]
            try:
                recordings = await asyncio.to_thread(list, map(_build_recording, batch))
                async with self._store.writing() as tx:
                    await tx.recordings.put(recordings)
            except StoreUnavailable:
                log.warning("contents are not kept: the database is away", requests=len(batch))
            except Exception:  # noqa: BLE001 - what cannot be written once must not end all writing
                # Without the words of the failure: they may quote the contents.
                log.error("contents are not kept: they cannot be written", requests=len(batch))
            self.bytes_left += sum(each.weight for each in batch)


def _build_recording(queued_contents: _QueuedContents) -> Recording:
    usage, contents = queued_contents.usage, queued_contents.contents
    request = contents.request()
    reply = contents.reply(
        Usage(usage.prompt, usage.completion, usage.cached, usage.reasoning, usage.estimated)
    )
    return Recording(
        id=usage.id,
        project_id=usage.project,
        user_id=usage.user,
        at=usage.moment,
        request=request.text,
        request_cut=request.cut,
        reply=reply.text,
        reply_cut=reply.cut,
    )


RECORD_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class Recordings(AccountService):
    """The recorded contents of projects. ``most_days`` bounds what a project can choose."""

    most_days = LONGEST_DAYS

    def may_log(self, columns: Collection[RoleColumn]) -> bool:
        """Return whether the policy lets somebody in these columns turn on request logging."""
        return not self.policies.loggers.isdisjoint(columns)

    async def keep(self, actor: Actor, project_id: str, days: int | None) -> Project:
        """Keep contents for ``days`` from now on; ``None`` keeps none and deletes the former.

        Fewer days apply to former contents too, more do not. Raises :class:`InvalidRequest`.
        """
        if days is not None and not 1 <= days <= self.most_days:
            raise InvalidRequest(
                f"Contents are kept for 1 to {self.most_days} days, or not at all.", param="days"
            )
        async with self._store.writing() as tx:
            project = await visible_project(tx, actor, project_id, Action.RECORDING_SET)
            *_, columns = await parts(tx, actor, project_id)
            allowed = self.policies.loggers if actor.kind == "system" else self.may_log(columns)
            if days is not None and not allowed:
                raise Forbidden(
                    "The policy of this service does not let you turn on request logging.",
                    code="scope_not_allowed",
                )
            await tx.projects.set_recording(project_id, days)
            if days is None:
                await tx.recordings.forget(project_id)
            else:
                await tx.recordings.shorten(project_id, timedelta(days=days))
            await tx.keys.announce(f"project:{project_id}")
            said = difference(project.recording_days or "off", days or "off")
            await tx.audit.record(actor, "project.recording", project_id, project_id, days=said)
        return replace(project, recording_days=days)

    async def see(self, actor: Actor, project_id: str, id: str) -> Recording:
        """Return the contents of one request; raise :class:`Forbidden` and :class:`NotFound`."""
        async with self._begin_read(actor, Action.PROJECT_SEE, project_id) as tx:
            found = await tx.recordings.find(id) if RECORD_ID.fullmatch(id) else None
            if found is not None and found.project_id != project_id:
                found = None
            whose = found.user_id if found is not None else actor.id
            await require(tx, actor, Action.CONTENTS_SEE, project_id, made_by=whose)
        return existing(found, "recording")

    async def export(self, actor: Actor, project_id: str) -> AsyncGenerator[Sequence[Recording]]:
        """Yield all contents of a project in pieces, oldest first, and audit the export."""
        async with self._begin_write(actor, Action.CONTENTS_EXPORT, project_id) as tx:
            await tx.audit.record(actor, "project.export_contents", project_id, project_id)
        after: str | None = ""
        while after is not None:
            async with self._begin_read(actor, Action.CONTENTS_EXPORT, project_id) as tx:
                found, after = await tx.recordings.page(project_id, after, _EXPORTED)
            yield found

    async def kept(self, actor: Actor, project_id: str, ids: Sequence[str]) -> frozenset[str]:
        """Return those of ``ids`` whose contents are stored and may be seen by the actor."""
        async with self._store.reading() as tx:
            found = await reach(tx, actor, Action.CONTENTS_SEE, project_id)
            if found is Extent.NO or not ids:
                return frozenset()
            users = await tx.recordings.users(project_id, ids)
        return frozenset(
            id for id, user in users.items() if found is Extent.ALL or user == actor.id
        )

    async def search(
        self, actor: Actor, project_id: str, ids: Sequence[str], text: str
    ) -> frozenset[str]:
        """Return those of ``ids`` whose contents have ``text`` in any case and the actor may see.

        The database cannot search encrypted contents, so each one is decrypted. Raises
        :class:`Forbidden` if the actor may see none.
        """
        async with self._begin_read(actor, Action.PROJECT_SEE, project_id) as tx:
            found = await reach(tx, actor, Action.CONTENTS_SEE, project_id)
            if found is Extent.NO:
                await require(tx, actor, Action.CONTENTS_SEE, project_id)
            kept = await tx.recordings.several(project_id, ids)
        seen = [each for each in kept if found is Extent.ALL or each.user_id == actor.id]
        return await asyncio.to_thread(_find_ids_containing, seen, text)


def _find_ids_containing(recordings: Sequence[Recording], text: str) -> frozenset[str]:
    # They are JSON, so the text is compared as it is written in a string there.
    wanted = msgspec.json.encode(text).decode()[1:-1].casefold()
    return frozenset(
        each.id
        for each in recordings
        if wanted in each.request.casefold() or wanted in each.reply.casefold()
    )


async def contents_lines(
    recordings: Recordings, actor: Actor, project: str
) -> AsyncGenerator[bytes]:
    """Yield the logged contents of a project as JSON lines, oldest first."""
    async with aclosing(recordings.export(actor, project)) as pieces:
        async for found in pieces:
            yield await asyncio.to_thread(b"".join, map(_encode_recording_line, found))


def _encode_recording_line(entry: Recording) -> bytes:
    # What was cut is a text in place of JSON.
    said = {"request": (entry.request, entry.request_cut), "reply": (entry.reply, entry.reply_cut)}
    line = {
        **{"id": entry.id, "at": entry.at, "project": entry.project_id, "user": entry.user_id},
        **{
            name: text if cut else msgspec.Raw(text.encode()) if text else None
            for name, (text, cut) in said.items()
        },
        "cut": [name for name, (_, cut) in said.items() if cut],
    }
    return msgspec.json.encode(line) + b"\n"


log = structlog.get_logger(__name__)

_DELETED = 500  # at once
_MEASUREMENTS_DAYS = 90
_PAUSE = 0.1  # between two batches: requests are written in between


class Retention(Struct):
    """Deletes requests, audit entries and contents that are too old, in small batches.

    ``None`` keeps requests and audit entries for ever.
    """

    _store: SqlRetention
    _clock: Clock
    requests_days: int | None = None
    audit_days: int | None = None
    contents_days: int | None = None
    """At most; projects choose fewer."""

    async def follow(self, seconds: float = 60.0) -> None:
        """Delete what is too old every so many seconds, until cancelled."""
        while True:
            try:
                await self.sweep()
            except StoreUnavailable:
                log.warning("what is kept too long waits for the database")
            await asyncio.sleep(seconds)

    async def sweep(self) -> None:
        """Delete everything that is too old now; raise :class:`StoreUnavailable`."""
        store = self._store
        await self._repeat_while_batch_full(
            partial(store.contents, self._clock(), self._compute_cutoff(self.contents_days))
        )
        for days, delete in (
            (self.requests_days, store.requests),
            (self.audit_days, store.audit),
            (_MEASUREMENTS_DAYS, store.measurements),
        ):
            if (before := self._compute_cutoff(days)) is not None:
                await self._repeat_while_batch_full(partial(delete, before))

    def _compute_cutoff(self, days: int | None) -> datetime | None:
        return None if days is None else self._clock() - timedelta(days=days)

    async def _repeat_while_batch_full(self, delete_batch: Callable[[int], Awaitable[int]]) -> None:
        found = _DELETED
        while found == _DELETED:
            found = await delete_batch(_DELETED)
            await asyncio.sleep(_PAUSE if found == _DELETED else 0)
