"""Pages of entries with plain forms: own models, doors, policies, aliases, and alert channels."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from causerie.errors import InvalidRequest, NotFound
from causerie.hosted.accounts.records import EntryKind
from causerie.hosted.console.entries import (
    EntryPages,
    SettingsForm,
    of_unknown_kinds,
    text_of,
    typed_number,
)
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.operations.configuring import EntryView
from causerie.hosted.operations.ports import ChannelTest

MODELS = EntryPages.of("model")
DOORS = EntryPages.of("door")
POLICIES = EntryPages.of("policy")
Row = Mapping[str, str]

_PARTS = ("prompt", "completion")
_TARGET = ("provider", "model", "priority", "weight", *_PARTS, "price")


class AliasForm(SettingsForm, frozen=True):
    """The form of an alias, with a row for each of its targets."""

    row_names = ("targets", *(f"targets[].{name}" for name in _TARGET))

    @property
    def targets(self) -> Sequence[Row]:
        return [row for row in self.typed.rows("target", _TARGET) if row["model"]]

    @classmethod
    def pop_rows(cls, settings: dict[str, Any]) -> Iterable[tuple[str, str]]:
        rows = [_build_target_row(each) for each in settings.pop("targets")]
        return [(f"target_{name}", row.get(name, "")) for row in rows for name in _TARGET]

    def settings(self) -> dict[str, Any]:
        targets = [_build_target_settings(row) for row in self.targets]
        if not targets:
            raise InvalidRequest("are missing; name at least one model", param="targets")
        return {**SettingsForm.settings(self), "targets": targets}


def _build_target_row(target: Mapping[str, Any]) -> Row:
    row = {name: text_of(target[name]) for name in target if name != "price"}
    if "price" in target:  # what no field shows of it is kept
        price = dict(target["price"])
        row |= {name: str(price.pop(name)) for name in _PARTS if name in price}
        row["price"] = msgspec.json.encode(price).decode()
    return row


def _build_target_settings(row: Row) -> dict[str, Any]:
    numbers = {name: typed_number(row[name]) for name in ("priority", "weight") if row.get(name)}
    provider = {"provider": row["provider"]} if row.get("provider") else {}
    typed = {name: row[name] for name in _PARTS if row.get(name)}
    try:
        kept = msgspec.json.decode(row.get("price") or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as failure:
        raise InvalidRequest("is no JSON object", param="targets") from failure
    priced = {"price": kept | typed} if typed or row.get("price") else {}
    return {**provider, "model": row["model"], **numbers, **priced}


class AliasPages(EntryPages):
    template = "operator/alias.html"
    form = AliasForm

    async def around(self, context: RequestContext) -> Mapping[str, Any]:
        entries = await context.configuration.every(context.actor)
        found = (each.settings.get("targets", ()) for each in entries if each.kind == "alias")
        models = {one.get("model", "") for targets in found for one in targets}
        return {
            "providers": sorted({each.name for each in entries if each.kind == "provider"}),
            "own": any(each.kind == "model" for each in entries),
            "targets": sorted(models - {"", "*"}),
        }


ALIASES = AliasPages.of("alias")


_SECRET_BYTES = 32


class AlertsPages(EntryPages):
    """Pages that list and change alert channels: webhooks and e-mail receivers."""

    template = "operator/channel.html"

    async def create(self, context: RequestContext) -> None:
        """Add a channel; a secret that is made here is shown once."""
        given, kind = context.form.get("key"), self._get_kind_of_new_entry(context)
        if kind == "email" or given or context.form.get("format"):
            await self._store_new_entry(context, given)
            self._redirect_to_list(context, "added")
            return
        secret = f"whsec_{b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"
        await self._store_new_entry(context, secret)
        name = context.form.get("name")
        await context.send_page("operator/channel_secret.html", name=name, secret=secret)

    async def around(self, context: RequestContext) -> Mapping[str, Any]:
        return {"kinds": (await context.operations.alerts.see(context.actor)).kinds}

    async def _build_submitted_form(self, context: RequestContext) -> SettingsForm:
        every = (await context.operations.alerts.see(context.actor)).kinds
        kinds = [each for each in every if each in context.form.every("kinds")]
        others = [(name, text) for name, text in context.form if name != "kinds"]
        wanted = [("kinds", each) for each in kinds if len(kinds) < len(every)]
        return self.form(self.fields, FormFields([*others, *wanted]))

    def _get_kind_of_new_entry(self, context: RequestContext) -> EntryKind:
        asked = context.form.get("kind", context.query.get("kind"))
        for kind in self.kinds:
            if kind == asked:
                return kind
        raise NotFound("There is no such channel in the database.")


CHANNELS = AlertsPages.of("channel")


async def test_channel(context: RequestContext) -> None:
    tested = await context.operations.alerts.test(context.actor, context.params["channel"])
    await show_alerts(context, tested)


async def show_alerts(context: RequestContext, tested: ChannelTest | None = None) -> None:
    view = await context.operations.alerts.see(context.actor)
    entries = await context.configuration.every(context.actor)
    await context.send_page(
        "operator/alerts.html",
        view=view,
        channels=[
            (one, _list_receiver_emails_or_hosts(one), [*map(str, one.settings.get("kinds", ()))])
            for one in entries
            if one.kind in ("webhook", "email")
        ],
        tested=tested,
        unknown=of_unknown_kinds(entries),
    )


def _list_receiver_emails_or_hosts(channel: EntryView) -> Sequence[str]:
    if channel.kind == "email":
        return [*map(str, channel.settings.get("to", ()))]
    # The path of an address can hold a secret, so only its host is shown.
    return [urlsplit(str(channel.settings.get("url", ""))).netloc]
