"""Alerts for operators: channels with a test for each, rules, alerts, and what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from causerie.console.channel_form import FIELDS, ChannelForm, ChannelKind, new_secret
from causerie.console.entries import EntryProblems, entries_of, of_unknown_kinds, origin_of
from causerie.console.pages.entry_pages import EntryKindWords, EntryPages
from causerie.console.request_context import RequestContext
from causerie.errors import InvalidRequest, NotFound
from causerie.operations.alerts import ChannelTest
from causerie.operations.configuring import EntryView
from causerie.operations.ports import Operations

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
    """A channel, and how its receivers and alerts are shown."""

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
    """Return the kind of a channel; raise :class:`NotFound` for one that there is not."""
    if text == "webhook":
        return "webhook"
    if text == "email":
        return "email"
    raise NotFound("There is no such channel in the database.")


def _rows(entries: Sequence[EntryView]) -> Iterator[_Row]:
    """Yield the channels; of an address without its path, which others must not know."""
    for each in entries:
        if each.kind in ("webhook", "email"):
            said = each.settings
            place = [urlsplit(str(said.get("url", ""))).netloc]
            receivers = place if each.kind == "webhook" else list(map(str, said.get("to", ())))
            yield _Row(each, receivers, tuple(map(str, said.get("kinds", ()))))
