"""Alerts for operators: channels with their form and a test for each, rules, alerts, and what was
sent.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.console.entries import (
    EntryKindWords,
    EntryPages,
    EntryProblems,
    entries_of,
    of_unknown_kinds,
    origin_of,
    read_rest,
    rest_of,
)
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView, EntryWish
from causerie.hosted.operations.ports import ChannelTest, Operations
from causerie.protocol.numbers import whole_number

ChannelKind = Literal["webhook", "email"]
FIELDS = ("name", "url", "to", "kinds", "key", "more")
_TYPED = ("name", "url", "to", "kinds")
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class ChannelForm:
    """Contents of the form; ``kinds`` is empty for all alerts, ``to`` has an address a line."""

    kind: ChannelKind
    name: str = ""
    url: str = ""
    to: str = ""
    kinds: Sequence[str] = ()
    more: str = ""
    version: str = ""

    @staticmethod
    def of(entry: EntryView) -> ChannelForm:
        said = entry.settings
        others = {name: value for name, value in said.items() if name not in _TYPED}
        return ChannelForm(
            "webhook" if entry.kind == "webhook" else "email",
            entry.name,
            str(said.get("url", "")),
            "\n".join(map(str, said.get("to", ()))),
            tuple(map(str, said.get("kinds", ()))),
            rest_of(others),
            str(entry.version),
        )

    @staticmethod
    def typed(kind: ChannelKind, form: FormFields, every: Sequence[str]) -> ChannelForm:
        """Return the form as it was sent; ``every`` are all kinds of alerts."""
        kinds = tuple(each for each in every if each in form.every("kinds"))
        return ChannelForm(
            kind,
            form.get("name"),
            form.get("url"),
            "\n".join(form.raw("to").replace(",", "\n").split()),
            () if kinds == tuple(every) else kinds,
            form.raw("more").strip(),
            form.get("version"),
        )

    def wish(self, key: str | None, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        if not self.name:
            raise InvalidRequest("is missing; deliveries and logs show it", param="name")
        version = whole_number(self.version)
        return EntryWish(settings=self._settings(), key=key, enabled=enabled, version=version)

    def _settings(self) -> dict[str, Any]:
        place: dict[str, Any] = (
            {"url": self.url} if self.kind == "webhook" else {"to": self.to.split()}
        )
        kinds = {"kinds": list(self.kinds)} if self.kinds else {}
        return {**read_rest(self.more), "name": self.name, **place, **kinds}


def new_secret() -> str:
    """Return a new secret of a webhook, in the form of the Standard Webhooks specification."""
    return f"whsec_{b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


_PATH = "/operator/alerts"
_PAGE = "operator/alerts.html"
_FORM = "operator/channel.html"
_WORDS = EntryKindWords(
    kinds=frozenset({"webhook", "email"}),
    noun="channel",
    notice="channel",
    list_path=_PATH,
    path=f"{_PATH}/channels",
    delete_button="Delete channel",
    deletion="It gets no more alerts, and messages that wait for it are dropped.",
)


@dataclass(frozen=True, slots=True)
class _Row:
    entry: EntryView
    receivers: Sequence[str]
    kinds: Sequence[str]
    """Empty for all."""


class AlertsPages(EntryPages):
    """Asked of the desk and the configuration, which decide who may; channels are entries."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations.configuration, _WORDS)
        self._desk = operations.alerts

    async def show(self, context: RequestContext) -> None:
        await self._show(context)

    async def test(self, context: RequestContext) -> None:
        """``POST /operator/alerts/{channel}/test``: send one now, and show what was answered."""
        await self._show(context, await self._desk.test(context.actor, context.params["channel"]))

    async def new(self, context: RequestContext) -> None:
        await self._form(context, None, ChannelForm(_kind(context.query.get("kind"))))

    async def create(self, context: RequestContext) -> None:
        """``POST /operator/alerts/channels/new``; a secret that is made here is shown once."""
        kind = _kind(context.form.get("kind"))
        form = await self._typed(context, kind)
        given = context.form.get("key")
        secret = (given or new_secret()) if kind == "webhook" else ""
        try:
            context.check_form()
            await self._configuration.create(context.actor, kind, form.wish(secret))
        except InvalidRequest as failure:
            await self._form(context, None, form, failure)
            return
        if kind == "email" or given:
            self._leave(context, "added")
            return
        await context.show("operator/channel_secret.html", name=form.name, secret=secret)

    async def see(self, context: RequestContext) -> None:
        entry = await self._entry(context)
        await self._form(context, entry, ChannelForm.of(entry))

    async def change(self, context: RequestContext) -> None:
        """``POST /operator/alerts/channels/{entry}``; an empty secret leaves the one there is."""
        entry = await self._entry(context)
        form = await self._typed(context, _kind(entry.kind))
        try:
            context.check_form()
            wish = form.wish(context.form.get("key") or None, enabled=entry.enabled)
            await self._configuration.change(context.actor, entry.id, wish)
        except InvalidRequest as failure:
            await self._form(context, entry, form, failure)
            return
        self._leave(context, "saved")

    async def _typed(self, context: RequestContext, kind: ChannelKind) -> ChannelForm:
        view = await self._desk.see(context.actor)
        return ChannelForm.typed(kind, context.form, view.kinds)

    async def _show(self, context: RequestContext, tested: ChannelTest | None = None) -> None:
        view = await self._desk.see(context.actor)
        entries = await entries_of(self._configuration, context.actor)
        channels, unknown = list(_rows(entries)), of_unknown_kinds(entries)
        await context.show(_PAGE, view=view, channels=channels, tested=tested, unknown=unknown)

    async def _form(
        self,
        context: RequestContext,
        entry: EntryView | None,
        form: ChannelForm,
        failure: InvalidRequest | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "entry": entry,
            "form": form,
            "kinds": (await self._desk.see(context.actor)).kinds,
            "problems": EntryProblems(failure, origin_of(form.kind, form.name), FIELDS),
        }
        await context.show_form(_FORM, failure, **values)


def _kind(text: str) -> ChannelKind:
    if text == "webhook":
        return "webhook"
    if text == "email":
        return "email"
    raise NotFound("There is no such channel in the database.")


def _rows(entries: Sequence[EntryView]) -> Iterator[_Row]:
    # The path of an address can hold a secret, so only its host is shown.
    for each in entries:
        if each.kind in ("webhook", "email"):
            said = each.settings
            place = [urlsplit(str(said.get("url", ""))).netloc]
            receivers = place if each.kind == "webhook" else list(map(str, said.get("to", ())))
            yield _Row(each, receivers, tuple(map(str, said.get("kinds", ()))))
