"""Alerts for operators: channels with their form and a test for each, rules, alerts, and what was
sent.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from causerie.errors import NotFound
from causerie.hosted.accounts.records import EntryKind
from causerie.hosted.console.entries import (
    EntryFormPages,
    SettingsForm,
    entry_form,
    of_unknown_kinds,
)
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView
from causerie.hosted.operations.ports import ChannelTest

_SECRET_BYTES = 32


class AlertsPages(EntryFormPages):
    """Channels of alerts are entries of the configuration."""

    template = "operator/channel.html"

    async def create(self, context: RequestContext) -> None:
        """Add a channel; a secret that is made here is shown once."""
        given = context.form.get("key")
        if self._kind(context) == "email" or given or context.form.get("format"):
            await self._create(context, given)
            self._leave(context, "added")
            return
        secret = f"whsec_{b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"
        await self._create(context, secret)
        name = context.form.get("name")
        await context.show("operator/channel_secret.html", name=name, secret=secret)

    async def around(self, context: RequestContext) -> Mapping[str, Any]:
        return {"kinds": (await context.operations.alerts.see(context.actor)).kinds}

    async def _typed(self, context: RequestContext) -> SettingsForm:
        form = await super()._typed(context)
        every = (await context.operations.alerts.see(context.actor)).kinds
        kinds = [each for each in every if each in context.form.every("kinds")]
        wanted = "" if len(kinds) == len(every) else ", ".join(kinds)
        return replace(form, values={**form.values, "kinds": wanted})

    def _kind(self, context: RequestContext) -> EntryKind:
        asked = context.form.get("kind", context.query.get("kind"))
        for kind in self.words.kinds:
            if kind == asked:
                return kind
        raise NotFound("There is no such channel in the database.")


CHANNELS = AlertsPages(*entry_form("channel"))


async def test(context: RequestContext) -> None:
    tested = await context.operations.alerts.test(context.actor, context.params["channel"])
    await show(context, tested)


async def show(context: RequestContext, tested: ChannelTest | None = None) -> None:
    view = await context.operations.alerts.see(context.actor)
    entries = await context.configuration.every(context.actor)
    await context.show(
        "operator/alerts.html",
        view=view,
        channels=[
            (one, _receivers(one), [*map(str, one.settings.get("kinds", ()))])
            for one in entries
            if one.kind in ("webhook", "email")
        ],
        tested=tested,
        unknown=of_unknown_kinds(entries),
    )


def _receivers(channel: EntryView) -> Sequence[str]:
    if channel.kind == "email":
        return [*map(str, channel.settings.get("to", ()))]
    # The path of an address can hold a secret, so only its host is shown.
    return [urlsplit(str(channel.settings.get("url", ""))).netloc]
