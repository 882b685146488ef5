"""An alias as a form, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from causerie.console.entries import number, read_rest, rest_of
from causerie.console.fields import FormFields
from causerie.errors import InvalidRequest
from causerie.operations.configuring import EntryWish
from causerie.protocol.numbers import whole_number

Row = Mapping[str, str]

_TEXTS = ("id", "name", "description")
_PRICES = ("prompt", "completion")
_TARGET = ("provider", "model", "priority", "weight")
FIELDS = (
    *_TEXTS,
    *(f"price.{part}" for part in _PRICES),
    *(f"targets[].{name}" for name in _TARGET),
    "targets",
    "more",
)


@dataclass(frozen=True, slots=True)
class AliasForm:
    """Contents of the form: texts, rows of targets, and all other settings as JSON."""

    values: Mapping[str, str] = field(default_factory=dict)
    targets: Sequence[Row] = ({},)
    more: str = ""
    version: str = ""

    @staticmethod
    def of(settings: Mapping[str, Any], version: int) -> AliasForm:
        values = {name: str(settings[name]) for name in _TEXTS if name in settings}
        price = dict(settings.get("price", {}))
        values |= {f"price.{part}": price.pop(part) for part in _PRICES if part in price}
        others = {name: value for name, value in settings.items() if name not in values}
        others = {name: value for name, value in others.items() if name not in ("targets", "price")}
        if price:
            others["price"] = price
        rows = [{name: _text(each[name]) for name in each} for each in settings["targets"]]
        return AliasForm(values, rows, rest_of(others), str(version))

    @staticmethod
    def typed(form: FormFields) -> AliasForm:
        """Return the form as it was sent, without rows that name no model."""
        names = (*_TEXTS, *(f"price.{part}" for part in _PRICES))
        columns = [form.every(f"target_{name}") for name in _TARGET]
        rows = [dict(zip(_TARGET, row, strict=True)) for row in zip_longest(*columns, fillvalue="")]
        return AliasForm(
            {name: form.get(name) for name in names if form.get(name)},
            [row for row in rows if row["model"]],
            form.raw("more").strip(),
            form.get("version"),
        )

    @property
    def id(self) -> str:
        return self.values.get("id", "")

    def settings(self) -> dict[str, Any]:
        """Return the settings that were typed; raise :class:`InvalidRequest`."""
        others = read_rest(self.more)
        parts = {part: self.values.get(f"price.{part}") for part in _PRICES}
        price = {**others.pop("price", {}), **{part: each for part, each in parts.items() if each}}
        typed = {name: self.values[name] for name in _TEXTS if name in self.values}
        return {
            **others,
            **typed,
            "targets": [_target(row) for row in self.targets],
            **({"price": price} if price else {}),
        }

    def wish(self, *, enabled: bool = True) -> EntryWish:
        """Return the wanted state; raise :class:`InvalidRequest`."""
        if not self.id:
            raise InvalidRequest("is missing; it is what requests name as `model`", param="id")
        if not self.targets:
            raise InvalidRequest("are missing; name at least one model", param="targets")
        version = whole_number(self.version)
        return EntryWish(settings=self.settings(), enabled=enabled, version=version)


def _target(row: Row) -> dict[str, Any]:
    numbers = {name: number(row[name]) for name in ("priority", "weight") if row.get(name)}
    provider = {"provider": row["provider"]} if row.get("provider") else {}
    return {**provider, "model": row["model"], **numbers}


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
