"""An entry of the configuration as a form of plain fields, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from causerie.console.entries import number, read_rest, rest_of
from causerie.console.fields import FormFields
from causerie.errors import InvalidRequest
from causerie.operations.configuring import EntryWish
from causerie.protocol.numbers import whole_number

_BETWEEN = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class SettingField:
    """A field for one setting. ``name`` is its path, as in ``limits.concurrent``."""

    name: str
    title: str
    kind: Literal["text", "number", "list", "choice", "flag"] = "text"
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """Of a choice: values and their words; the empty value leaves the setting out."""
    placeholder: str = ""
    group: str = ""
    """Title of the part of the form that is folded; empty: always shown."""
    needed: bool = False


LIMITS = tuple(
    SettingField(f"limits.{name}", title, "number", group="Limits")
    for name, title in (
        ("requests_per_minute", "Requests / min"),
        ("tokens_per_minute", "Tokens / min"),
        ("concurrent", "At the same time"),
    )
)
"""Fields that limit all use together."""


@dataclass(frozen=True, slots=True)
class SettingsForm:
    """Contents of the form: a text for each field, and all other settings as JSON."""

    fields: Sequence[SettingField]
    values: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    version: str = ""

    @staticmethod
    def of(
        fields: Sequence[SettingField], settings: Mapping[str, Any], version: int
    ) -> SettingsForm:
        rest = _copied(settings)
        values = {
            each.name: _text(found)
            for each in fields
            if (found := _taken(rest, each.name.split("."))) is not None
        }
        return SettingsForm(fields, values, rest_of(rest), str(version))

    @staticmethod
    def typed(fields: Sequence[SettingField], form: FormFields) -> SettingsForm:
        values = {each.name: form.get(each.name) for each in fields if form.get(each.name)}
        return SettingsForm(fields, values, form.raw("more").strip(), form.get("version"))

    @property
    def groups(self) -> Mapping[str, Sequence[SettingField]]:
        """Return the fields by the title of their part, in order."""
        found: dict[str, list[SettingField]] = {}
        for each in self.fields:
            found.setdefault(each.group, []).append(each)
        return found

    def settings(self) -> dict[str, Any]:
        """Return the settings that were typed; raise :class:`InvalidRequest`."""
        settings = read_rest(self.more)
        for each in self.fields:
            text = self.values.get(each.name, "")
            if text:
                _put(settings, each.name.split("."), _value(each, text))
        return settings

    def wish(self, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        for each in self.fields:
            if each.needed and not self.values.get(each.name):
                raise InvalidRequest("is missing", param=each.name)
        version = whole_number(self.version)
        return EntryWish(settings=self.settings(), enabled=enabled, version=version)


def _value(field: SettingField, text: str) -> Any:
    if field.kind == "list":
        return [part for part in _BETWEEN.split(text) if part]
    if field.kind == "flag":
        return True
    return number(text) if field.kind == "number" else text


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "on" if value else ""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _copied(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _copied(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
    }


def _taken(settings: dict[str, Any], path: Sequence[str]) -> Any:
    """Take the value of a setting out of the settings; ``None`` if it has none, or a table."""
    name, *inner = path
    found = settings.get(name)
    if not inner:
        return settings.pop(name, None) if not isinstance(found, dict) else None
    if not isinstance(found, dict):
        return None
    value = _taken(found, inner)
    if not found:
        del settings[name]
    return value


def _put(settings: dict[str, Any], path: Sequence[str], value: Any) -> None:
    name, *inner = path
    if not inner:
        settings[name] = value
        return
    table = settings.setdefault(name, {})
    if not isinstance(table, dict):
        raise InvalidRequest(f"has `{name}`, which is a table", param="more")
    _put(table, inner, value)
