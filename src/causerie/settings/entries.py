"""Entries of the configuration that do not come from the file, and the rules for each alone.

They are checked with the file, by the same rules. The file holds without them, and what it sets
stays; an entry that does not hold with it, or with the others, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference
from causerie.providers.dialects import KNOWN_PROVIDERS
from causerie.settings.console import PolicySettings
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.values import Secret

if TYPE_CHECKING:
    from causerie.settings.load import Loaded
    from causerie.settings.tree import Settings


EntryKind = Literal[
    "provider", "alias", "catalog_model", "model", "door", "policy", "webhook", "email"
]
EntryKey = tuple[EntryKind, str]
DEFAULT_DOORS: Mapping[str, EntryKind] = {"gateway": "alias", "router": "catalog_model"}
"""Doors that are there by default, by what is behind them. Their kinds are their names."""
OFF = "all providers that it names are switched off"
_ENGINES = ("llamacpp", "openvino", "vllm", "fake")
_PLACE = "only the file may name a place on this machine"
_PROGRAM = "only the file may say how a program is started"


class EntryTable(Struct, frozen=True):
    """Declares the tables of the file that entries of one kind correspond to."""

    path: tuple[str, ...]
    name: str = "name"
    """Setting that names an entry."""
    key: str = ""
    """Setting that says where a key is found, which an entry keeps apart."""
    targets: str = ""
    """Setting that lists targets."""
    completed: Sequence[str] = ()
    """Settings that an entry may add to what the file names, where the file does not set them."""
    file_only: Mapping[str, str] = {}
    """Settings that no entry may have, and why."""


TABLES: Mapping[EntryKind, EntryTable] = {
    "provider": EntryTable(
        ("providers",),
        key="key",
        file_only=dict.fromkeys(
            ("key", "tls.ca_file", "tls.client_cert", "tls.client_key"), _PLACE
        ),
    ),
    "alias": EntryTable(
        ("aliases",),
        name="id",
        targets="targets",
        completed=("name", "description", "limits", "price"),
    ),
    "catalog_model": EntryTable(
        ("catalog",),
        name="id",
        targets="endpoints",
        completed=("name", "description", "ends", "limits"),
    ),
    "model": EntryTable(
        ("models",),
        name="id",
        completed=(
            *("name", "description", "limits", "max_output_tokens", "networks", "price", "queue"),
            "sampling",
        ),
        file_only={
            **dict.fromkeys(
                ("template", "llamacpp.draft", "llamacpp.lora", "llamacpp.mmproj"), _PLACE
            ),
            **dict.fromkeys(("vllm.key", "vllm.tls"), _PLACE),
            **dict.fromkeys(("llamacpp.command", "llamacpp.args"), _PROGRAM),
            **dict.fromkeys(("vllm.command", "vllm.args", "options"), _PROGRAM),
            **dict.fromkeys((f"{engine}.environment" for engine in _ENGINES[:3]), _PROGRAM),
            "keys": "only the file may hold digests of keys",
        },
    ),
    "door": EntryTable(
        ("doors",),
        completed=(
            *("models", "networks", "limits", "unknown_params", "long_output", "reasoning"),
            "cache_scope",
        ),
    ),
    "policy": EntryTable(
        ("policies",),
        completed=[name for name in PolicySettings.__struct_fields__ if name != "name"],
    ),
    "webhook": EntryTable(
        ("alerts", "webhooks"),
        key="secret",
        file_only=dict.fromkeys(("secret", "ca_file"), _PLACE),
    ),
    "email": EntryTable(("alerts", "emails")),
}
"""Tables by the kind of an entry, in the order of lists."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of the file's form that is kept outside the file, or an addition to one there."""

    kind: EntryKind
    name: str
    body: Mapping[str, Any]
    enabled: bool = True
    place: str = ""
    """File and line that it was read from, if it was."""
    secret: Secret | None = None
    """Place of its key that the file gives, if it does."""

    @property
    def key(self) -> EntryKey:
        return self.kind, self.name

    @property
    def table(self) -> EntryTable:
        return TABLES[self.kind]

    @property
    def origin(self) -> str:
        return self.place or f'the entry of {self.kind.replace("_", " ")} "{self.name}"'


# Rules for each entry of the database alone.


def tables_of(settings: Settings, kind: EntryKind) -> Sequence[Any]:
    found: Sequence[Any] = attrgetter(".".join(TABLES[kind].path))(settings)
    return found


def filed_index(entry: Entry, alone: Loaded) -> int | None:
    """Return the index of the file's table that has the entry's name; ``None`` without one."""
    names = (getattr(one, entry.table.name) for one in tables_of(alone.settings, entry.kind))
    return next((index for index, name in enumerate(names) if name == entry.name), None)


def refusals(entry: Entry, alone: Loaded) -> tuple[str, ...]:
    """Return the reasons to leave an entry out before it is checked with the file's settings."""
    index = filed_index(entry, alone)
    if index is not None:
        return tuple(_find_conflicts_with_file(entry, alone, index))
    origin = alone.origins.get(entry.table.path, "line")
    if entry.kind == "model" and alone.chosen:
        if entry.name not in alone.chosen:
            return ("`--model` of the command line leaves it out",)
    elif not origin.startswith("line"):
        return (f"{origin} says which {entry.table.path[-1]} there are",)
    if entry.kind == "model":
        return (*_find_file_only_setting_refusals(entry), *_find_model_refusals(entry.body))
    if entry.kind == "door":
        return tuple(_find_door_refusals(entry))
    return tuple(_find_file_only_setting_refusals(entry))


def _find_conflicts_with_file(entry: Entry, file_settings: Loaded, index: int) -> Iterator[str]:
    completed, path = entry.table.completed, entry.table.path
    one = tables_of(file_settings.settings, entry.kind)[index]
    if not entry.body or not set(entry.body) <= set(completed):
        place = file_settings.where((*path, index)) or "the default"
        rest = f"; an entry may add {', '.join(completed)}" if completed else ""
        yield f'"{entry.name}" is taken by {place}, which wins{rest}'
        return
    for field in msgspec.structs.fields(type(one)):
        if field.name in entry.body and getattr(one, field.name) != field.default:
            place = file_settings.where((*path, index, field.name)) or "the default"
            yield f"{field.name}: is set by {place}, which wins"


def _find_file_only_setting_refusals(entry: Entry) -> Iterator[str]:
    for path, words in entry.table.file_only.items():
        if has_value(entry.body, path.split(".")):
            yield f"{path}: {words}"
    if isinstance(entry.body.get("proxy"), Mapping):
        yield f"proxy: {_PLACE}"


def _find_model_refusals(body: Mapping[str, Any]) -> Iterator[str]:
    engine, ref = body.get("engine", "llamacpp"), body.get("ref")
    if isinstance(engine, str) and engine not in _ENGINES:
        yield f"engine: only the file may name one other than {', '.join(_ENGINES)}"
    try:
        if engine != "fake" and isinstance(ref, str) and Reference.parse(ref).kind is Kind.PATH:
            yield f"ref: {_PLACE}; name weights like `hf:ORG/REPO`"
    except (BadReference, OSError):
        return  # the rules say so


def _find_door_refusals(entry: Entry) -> Iterator[str]:
    # Limits of a door that is gone do not open another.
    if entry.body.get("keys") not in (None, "accounts"):
        yield 'keys: only the file may say who enters, other than by `keys = "accounts"`'
    if "kind" not in entry.body and entry.name not in DEFAULT_DOORS:
        yield f'kind: is missing, and the file has no door "{entry.name}" to add this to'


def pop_name(kind: EntryKind, body: dict[str, Any]) -> str | None:
    """Remove an entry's name from its table, and return it; a known provider has a default."""
    known = KNOWN_PROVIDERS.get(str(body.get("known"))) if kind == "provider" else None
    name = body.pop(TABLES[kind].name, known.name if known is not None else None)
    return name if isinstance(name, str) and name else None


def has_value(table: object, path: Sequence[str | int]) -> bool:
    """Return true if nested tables have a value at ``path``."""
    for part in path:
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return True


# Entries together with the file.

ReadWith = Callable[[Sequence[Entry], str | None], "Loaded"]
"""Reads the settings with some entries; with a text, the file is not read but says this."""


def merged(read: ReadWith, entries: Sequence[Entry], text: str | None = None) -> Loaded:
    """Return the file's settings with all valid entries; the others are in ``left_out``.

    ``text`` is the content of the file, if known. Raises :class:`SettingsError` if the
    file does not hold alone.
    """
    alone = read((), text)
    left_out = {entry.key: reasons for entry in entries if (reasons := refusals(entry, alone))}
    tried = [one for one in entries if one.key not in left_out]
    usable = list(without_switched_off(tried, alone))
    for one, now in zip(tried, usable, strict=True):
        if one.body.get(one.table.targets) and not now.body.get(one.table.targets):
            left_out[one.key] = (OFF,)
    wanted = [one for one in usable if one.enabled and one.key not in left_out]
    while wanted:
        try:
            return replace(read(wanted, alone.text), left_out=left_out)
        except SettingsError as error:
            left_out |= (faulty := _group_problems_by_entry(wanted, error.problems))
        wanted = [one for one in wanted if one.key not in faulty]
    return replace(alone, left_out=left_out)


def without_switched_off(entries: Sequence[Entry], alone: Loaded) -> Iterator[Entry]:
    """Yield the entries without those of their targets that are switched-off entries.

    An entry that adds to what the file names is no target.
    """
    off = {one.key for one in entries if not one.enabled and filed_index(one, alone) is None}
    for entry in entries:
        label = entry.table.targets
        targets = entry.body.get(label)
        if not isinstance(targets, list):
            yield entry
            continue
        kept = [each for each in targets if _build_entry_key(each) not in off]
        yield replace(entry, body={**entry.body, label: kept})


def _build_entry_key(target: object) -> EntryKey | None:
    if not isinstance(target, Mapping):
        return None
    provider = target.get("provider")
    if provider is None:
        return "model", str(target.get("model"))
    return "provider", str(provider)


def _group_problems_by_entry(
    entries: Sequence[Entry], problems: Sequence[Problem]
) -> dict[EntryKey, tuple[str, ...]]:
    # The file holds alone: where a problem names no entry, the newest one caused it.
    found: dict[EntryKey, tuple[str, ...]] = {}
    by_origin = {one.origin: one for one in entries}
    for problem in problems:
        places = (problem.where, problem.other)
        entry = next((by_origin[place] for place in places if place in by_origin), entries[-1])
        section, bracket, rest = problem.key.partition("[")
        below = bracket and section in {".".join(table.path) for table in TABLES.values()}
        key = rest.partition("]")[2].lstrip(".") if below else problem.key
        words = ": ".join(part for part in (key, problem.advice) if part)
        found[entry.key] = (*found.get(entry.key, ()), words)
    return found
