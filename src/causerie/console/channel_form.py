"""A channel of alerts as a form, and back."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from causerie.console.entries import read_rest, rest_of
from causerie.console.fields import FormFields
from causerie.errors import InvalidRequest
from causerie.operations.configuring import EntryView, EntryWish
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
