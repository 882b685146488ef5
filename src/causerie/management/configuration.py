"""Operations on entries of the configuration, for operators."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from causerie.accounts.entry import EntryKind
from causerie.management.bodies import Body, Count, NoBody
from causerie.management.queries import NoQuery
from causerie.management.route import ApiCall
from causerie.operations.configuring import Configuring, EntryView, EntryWish, Settings
from causerie.operations.trial import Trial

Key = Annotated[str, Meta(max_length=4096)]


class EntryList(Struct, frozen=True, kw_only=True):
    """Entries by kind, providers first; of each kind those of the file first."""

    data: list[EntryView]


class CreateEntry(Body, frozen=True):
    """A new entry, or what is added to one of the file."""

    kind: EntryKind
    settings: Settings
    key: Annotated[Key, Meta(description="Of a provider; kept encrypted, never shown.")] = ""
    enabled: bool = True


class ChangeEntry(Body, frozen=True):
    """All that an entry is from now on."""

    settings: Settings
    key: Annotated[
        Key | None, Meta(description="`null`: the key stays; empty: there is none any more.")
    ] = None
    enabled: bool = True
    version: Annotated[
        Count | None,
        Meta(description="Of the entry that was read: one that has changed since is 409."),
    ] = None


class TestProvider(Body, frozen=True):
    """A provider to try: one that is not kept, or with `entry` or `filed` one that is, as it is."""

    settings: Settings = msgspec.field(default_factory=dict)
    key: Key = ""
    model: Annotated[
        str, Meta(max_length=300, description="Whom to ask. Empty: the first of its list.")
    ] = ""
    entry: Annotated[str, Meta(max_length=64, description="Id of an entry.")] = ""
    filed: Annotated[str, Meta(max_length=64, description="Name of a provider of the file.")] = ""


class ConfigurationOperations:
    """Answers by the configuration of the running service."""

    def __init__(self, configuration: Configuring) -> None:
        self._configuration = configuration

    async def list(self, call: ApiCall[NoQuery, NoBody]) -> EntryList:
        return EntryList(data=[*await self._configuration.every(call.actor)])

    async def create(self, call: ApiCall[NoQuery, CreateEntry]) -> EntryView:
        body = call.body
        wish = EntryWish(settings=body.settings, key=body.key, enabled=body.enabled)
        return await self._configuration.create(call.actor, body.kind, wish)

    async def see(self, call: ApiCall[NoQuery, NoBody]) -> EntryView:
        return await self._configuration.see(call.actor, call.ids["entry"])

    async def change(self, call: ApiCall[NoQuery, ChangeEntry]) -> EntryView:
        body = call.body
        wish = EntryWish(
            settings=body.settings, key=body.key, enabled=body.enabled, version=body.version
        )
        return await self._configuration.change(call.actor, call.ids["entry"], wish)

    async def enable(self, call: ApiCall[NoQuery, NoBody]) -> EntryView:
        return await self._configuration.switch(call.actor, call.ids["entry"], enabled=True)

    async def disable(self, call: ApiCall[NoQuery, NoBody]) -> EntryView:
        return await self._configuration.switch(call.actor, call.ids["entry"], enabled=False)

    async def delete(self, call: ApiCall[NoQuery, NoBody]) -> None:
        await self._configuration.delete(call.actor, call.ids["entry"])

    async def test(self, call: ApiCall[NoQuery, TestProvider]) -> Trial:
        body = call.body
        if body.filed:
            return await self._configuration.test_filed(call.actor, body.filed, body.model)
        return await self._configuration.test(
            call.actor, body.settings, body.key, body.model, body.entry
        )
