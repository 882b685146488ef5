"""Rules for each entry of the database alone.

It names no place on this machine, and changes nothing that the file sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference

if TYPE_CHECKING:
    from causerie.settings.entries import Entry, Section
    from causerie.settings.load import Loaded
    from causerie.settings.tree import Settings

NAMES: Mapping[Section, str] = {
    "providers": "name",
    "aliases": "id",
    "catalog": "id",
    "models": "id",
    "doors": "name",
    "webhooks": "name",
    "emails": "name",
}
PATHS: Mapping[Section, tuple[str, ...]] = {
    **{section: (section,) for section in NAMES},
    "webhooks": ("alerts", "webhooks"),
    "emails": ("alerts", "emails"),
}
"""Path of the tables of a section in the file."""
KEYS: Mapping[Section, str] = {"providers": "key", "webhooks": "secret"}
"""Setting of the file that says where a key is found, which an entry keeps apart."""
DEFAULT_DOORS: Mapping[str, str] = {"gateway": "aliases", "router": "catalog"}
"""Doors that are there by default, by what is behind them. Their kinds are their names."""
_ENGINES = ("llamacpp", "openvino", "vllm", "fake")
_PLACE = "only the file may name a place on this machine"
_PROGRAM = "only the file may say how a program is started"
_FILE_ONLY: Mapping[Section, Mapping[str, str]] = {
    "providers": dict.fromkeys(("key", "tls.ca_file", "tls.client_cert", "tls.client_key"), _PLACE),
    "models": {
        **dict.fromkeys(("template", "llamacpp.draft", "llamacpp.lora"), _PLACE),
        **dict.fromkeys(("vllm.key", "vllm.tls"), _PLACE),
        **dict.fromkeys(("llamacpp.command", "llamacpp.args"), _PROGRAM),
        **dict.fromkeys(("vllm.command", "vllm.args", "options"), _PROGRAM),
        **dict.fromkeys((f"{engine}.environment" for engine in _ENGINES[:3]), _PROGRAM),
        "keys": "only the file may hold digests of keys",
    },
    "webhooks": dict.fromkeys(("secret", "ca_file"), _PLACE),
}
_COMPLETED: Mapping[Section, Sequence[str]] = {
    "aliases": ("name", "description", "limits", "price"),
    "catalog": ("name", "description", "ends", "limits"),
    "models": ("name", "description", "limits", "max_output_tokens", "price", "queue", "sampling"),
    "doors": ("models", "limits", "unknown_params", "long_output", "reasoning", "cache_scope"),
}
"""Settings that an entry may add to what the file names, where the file does not set them."""


def tables_of(settings: Settings, section: Section) -> Sequence[Any]:
    found: Any = settings
    for part in PATHS[section]:
        found = getattr(found, part)
    return tuple(found)


def filed_index(entry: Entry, alone: Loaded) -> int | None:
    """Return the index of what the file has under this name, if it has something."""
    label = NAMES[entry.section]
    for index, one in enumerate(tables_of(alone.settings, entry.section)):
        if getattr(one, label) == entry.name:
            return index
    return None


def refusals(entry: Entry, alone: Loaded) -> tuple[str, ...]:
    """Return why an entry is not even tried with a file that says this."""
    index = filed_index(entry, alone)
    if index is not None:
        return tuple(_taken(entry, alone, index))
    origin = alone.origins.get(PATHS[entry.section], "line")
    if entry.section == "models" and alone.chosen:
        if entry.name not in alone.chosen:
            return ("`--model` of the command line leaves it out",)
    elif not origin.startswith("line"):
        return (f"{origin} says which {entry.section} there are",)
    if entry.section == "models":
        return (*_file_only(entry), *_model(entry.body))
    if entry.section == "doors":
        return tuple(_door(entry))
    return tuple(_file_only(entry))


def _taken(entry: Entry, alone: Loaded, index: int) -> Iterator[str]:
    """Yield what the file has said already, or must say."""
    completed = _COMPLETED.get(entry.section, ())
    path, one = PATHS[entry.section], tables_of(alone.settings, entry.section)[index]
    if not entry.body or not set(entry.body) <= set(completed):
        place = alone.where((*path, index)) or "the default"
        rest = f"; an entry may add {', '.join(completed)}" if completed else ""
        yield f'"{entry.name}" is taken by {place}, which wins{rest}'
        return
    for field in msgspec.structs.fields(type(one)):
        if field.name in entry.body and getattr(one, field.name) != field.default:
            place = alone.where((*path, index, field.name)) or "the default"
            yield f"{field.name}: is set by {place}, which wins"


def _file_only(entry: Entry) -> Iterator[str]:
    for path, words in _FILE_ONLY.get(entry.section, {}).items():
        if _given(entry.body, path.split(".")):
            yield f"{path}: {words}"
    if isinstance(entry.body.get("proxy"), Mapping):
        yield f"proxy: {_PLACE}"


def _model(body: Mapping[str, Any]) -> Iterator[str]:
    engine, ref = body.get("engine", "llamacpp"), body.get("ref")
    if isinstance(engine, str) and engine not in _ENGINES:
        yield f"engine: only the file may name one other than {', '.join(_ENGINES)}"
    try:
        if engine != "fake" and isinstance(ref, str) and Reference.parse(ref).kind is Kind.PATH:
            yield f"ref: {_PLACE}; name weights like `hf:ORG/REPO`"
    except (BadReference, OSError):
        return  # the rules say so


def _door(entry: Entry) -> Iterator[str]:
    """Yield why it is no door of its own; limits of a door that is gone do not open another."""
    if entry.body.get("keys") not in (None, "accounts"):
        yield 'keys: only the file may say who enters, other than by `keys = "accounts"`'
    if "kind" not in entry.body and entry.name not in DEFAULT_DOORS:
        yield f'kind: is missing, and the file has no door "{entry.name}" to add this to'


def _given(body: Mapping[str, Any], path: Sequence[str]) -> bool:
    found: object = body
    for part in path:
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True
