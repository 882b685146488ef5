"""Known dialects and known providers, by the names that the configuration uses."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from causerie.protocol.parameters import EXTENDED_SAMPLING, HINT_NAMES, of_origin
from causerie.providers.dialect import Dialect

_TABLES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("dialects.toml").read_text("utf-8")
)
_GROUPS: Mapping[str, frozenset[str]] = {
    "common": of_origin("common"),
    "openai": of_origin("common", "openai"),
    "engines": of_origin("common", "openai", "engines"),
    "extended_sampling": EXTENDED_SAMPLING,
    "hints": HINT_NAMES - {"service_tier"},
    **{name: frozenset(names) for name, names in _TABLES.pop("groups").items()},
}


def _expand_field_groups(listed_names: list[str]) -> set[str]:
    found = set[str]()
    for each in listed_names:
        if each.startswith("@"):
            found |= _GROUPS[each[1:]]
        elif each.startswith("-"):
            found.remove(each[1:])
        else:
            found.add(each)
    return found


def _yield_listed_dialects() -> Iterator[Dialect]:
    types = get_type_hints(Dialect)
    for name, own in _TABLES.items():
        values = _TABLES[name] = {**_TABLES.get(own.pop("like", ""), {}), **own, "name": name}
        sets = {
            field: _expand_field_groups(values[field])
            for field in ("accepts", "knows")
            if field in values
        }
        both = (values | sets).items()
        yield Dialect(**{field: msgspec.convert(value, types[field]) for field, value in both})


DIALECTS: Mapping[str, Dialect] = {each.name: each for each in _yield_listed_dialects()}
GENERIC = DIALECTS["generic"]


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """A provider of ``known.toml``, whose values the setting ``known`` fills in."""

    name: str
    title: str  # its name for people
    base_url: str
    docs: str  # address of its documentation
    dialect: str = "generic"
    key: str = ""  # beginning of its API keys; empty: they have no common one
    local: bool = False  # it runs on one's own machine, and needs no key
    own: str = ""  # word of the base URL in place of which everybody has one of his own


_LISTED = tomllib.loads(Path(__file__).with_name("known.toml").read_text("utf-8"))["providers"]
KNOWN_PROVIDERS: Mapping[str, KnownProvider] = {
    one.name: one for one in msgspec.convert(_LISTED, tuple[KnownProvider, ...])
}
