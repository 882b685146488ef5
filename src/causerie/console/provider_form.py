"""A provider as a form, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from causerie.console.entries import number, read_rest, rest_of
from causerie.console.fields import FormFields
from causerie.errors import InvalidRequest
from causerie.operations.configuring import EntryWish
from causerie.protocol.numbers import whole_number
from causerie.providers.known import KNOWN_PROVIDERS, KnownProvider

_TEXTS = ("name", "known", "base_url", "dialect", "api_version")
_NUMBERS = ("max_concurrent",)
FIELDS = (*_TEXTS, *_NUMBERS, "key", "more")


@dataclass(frozen=True, slots=True)
class ProviderForm:
    """Contents of the form: texts by the names of their settings, and all others as JSON."""

    values: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    version: str = ""

    @staticmethod
    def new(known: KnownProvider | None) -> ProviderForm:
        """Return an empty form, or one for a known provider."""
        if known is None:
            return ProviderForm()
        return ProviderForm({"name": known.name, "known": known.name})

    @staticmethod
    def of(settings: Mapping[str, Any], version: int) -> ProviderForm:
        values = {name: str(settings[name]) for name in (*_TEXTS, *_NUMBERS) if name in settings}
        others = {name: value for name, value in settings.items() if name not in values}
        return ProviderForm(values, rest_of(others), str(version))

    @staticmethod
    def typed(form: FormFields) -> ProviderForm:
        """Return the form as it was sent; the key is not a part of it."""
        values = {name: form.get(name) for name in (*_TEXTS, *_NUMBERS) if form.get(name)}
        return ProviderForm(values, form.raw("more").strip(), form.get("version"))

    @property
    def name(self) -> str:
        return self.values.get("name", "")

    @property
    def known(self) -> KnownProvider | None:
        """Return the known provider that it is, if it is one."""
        return KNOWN_PROVIDERS.get(self.values.get("known", ""))

    def settings(self) -> dict[str, Any]:
        """Return the settings that were typed; raise :class:`InvalidRequest`."""
        typed: dict[str, Any] = dict(self.values)
        typed |= {name: number(typed[name]) for name in _NUMBERS if name in typed}
        return {**read_rest(self.more), **typed}

    def wish(self, key: str | None, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        if not self.name:
            raise InvalidRequest("is missing; programs and logs show it", param="name")
        version = whole_number(self.version)
        return EntryWish(settings=self.settings(), key=key, enabled=enabled, version=version)
