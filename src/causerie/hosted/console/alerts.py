"""Alerts for operators: channels with their form and a test for each, rules, alerts, and what was
sent.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.console.entries import (
    EntryKindWords,
    EntryPages,
    SettingField,
    SettingsForm,
    of_unknown_kinds,
)
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView
from causerie.hosted.operations.ports import ChannelTest

ChannelKind = Literal["webhook", "email"]
_SECRET_BYTES = 32
_NAME = SettingField("name", "Name", missing="is missing; deliveries and logs show it")
_KINDS = SettingField("kinds", "Alerts", "list")
_FIELDS = {
    "webhook": (_NAME, SettingField("url", "URL"), _KINDS),
    "email": (_NAME, SettingField("to", "Addresses", "lines"), _KINDS),
}


def new_secret() -> str:
    return f"whsec_{b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


_PATH = "/operator/alerts"
_FORM = "operator/channel.html"
CHANNELS = EntryKindWords(
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
    """Channels of alerts are entries of the configuration."""

    async def show(self, context: RequestContext) -> None:
        await _show_alerts(context)

    async def test(self, context: RequestContext) -> None:
        test = context.operations.alerts.test
        await _show_alerts(context, await test(context.actor, context.params["channel"]))

    async def new(self, context: RequestContext) -> None:
        kind = _kind(context.query.get("kind"))
        await _show_form(context, kind, None, SettingsForm(_FIELDS[kind]))

    async def create(self, context: RequestContext) -> None:
        """``POST /operator/alerts/channels/new``; a secret that is made here is shown once."""
        kind = _kind(context.form.get("kind"))
        form = await _typed(context, kind)
        given = context.form.get("key")
        secret = (given or new_secret()) if kind == "webhook" else ""
        try:
            context.check_form()
            await context.configuration.create(context.actor, kind, form.wish(key=secret))
        except InvalidRequest as failure:
            await _show_form(context, kind, None, form, failure)
            return
        if kind == "email" or given:
            self._leave(context, "added")
            return
        name = form.values["name"]
        await context.show("operator/channel_secret.html", name=name, secret=secret)

    async def see(self, context: RequestContext) -> None:
        entry = await self._entry(context)
        kind = _kind(entry.kind)
        form = SettingsForm.of(_FIELDS[kind], entry.settings, entry.version)
        await _show_form(context, kind, entry, form)

    async def change(self, context: RequestContext) -> None:
        """``POST /operator/alerts/channels/{entry}``; an empty secret leaves the one there is."""
        entry = await self._entry(context)
        kind = _kind(entry.kind)
        form = await _typed(context, kind)
        try:
            context.check_form()
            wish = form.wish(key=context.form.get("key") or None, enabled=entry.enabled)
            await context.configuration.change(context.actor, entry.id, wish)
        except InvalidRequest as failure:
            await _show_form(context, kind, entry, form, failure)
            return
        self._leave(context, "saved")


async def _typed(context: RequestContext, kind: ChannelKind) -> SettingsForm:
    form = SettingsForm.typed(_FIELDS[kind], context.form)
    every = (await context.operations.alerts.see(context.actor)).kinds
    kinds = [each for each in every if each in context.form.every("kinds")]
    wanted = "" if len(kinds) == len(every) else ", ".join(kinds)
    return replace(form, values={**form.values, "kinds": wanted, "to": context.form.raw("to")})


async def _show_alerts(context: RequestContext, tested: ChannelTest | None = None) -> None:
    view = await context.operations.alerts.see(context.actor)
    entries = await context.configuration.every(context.actor)
    channels, unknown = list(_rows(entries)), of_unknown_kinds(entries)
    await context.show(
        "operator/alerts.html", view=view, channels=channels, tested=tested, unknown=unknown
    )


async def _show_form(
    context: RequestContext,
    kind: ChannelKind,
    entry: EntryView | None,
    form: SettingsForm,
    failure: InvalidRequest | None = None,
) -> None:
    values: dict[str, Any] = {
        "entry": entry,
        "form": form,
        "kind": kind,
        "chosen": [each for each in form.values.get("kinds", "").split(", ") if each],
        "kinds": (await context.operations.alerts.see(context.actor)).kinds,
        "problems": form.problems(failure, kind),
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
