"""Entries of the configuration that do not come from the file, and the rules for each alone.

They are checked with the file, by the same rules. The file holds without them, and what it sets
stays; an entry that does not hold with it, or with the others, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from causerie.engines.weights.errors import BadReference
from causerie.engines.weights.reference import Kind, Reference
from causerie.providers.dialects import KNOWN_PROVIDERS
from causerie.settings.policies import PolicySettings
from causerie.settings.problems import Problem, SettingsError

if TYPE_CHECKING:
    from causerie.settings.load import Loaded
    from causerie.settings.tree import Settings


# Rules for each entry of the database alone.

KINDS: Mapping[Section, EntryKind] = {
    "providers": "provider",
    "aliases": "alias",
    "catalog": "catalog_model",
    "models": "model",
    "doors": "door",
    "policies": "policy",
    "webhooks": "webhook",
    "emails": "email",
}
"""Kind of an entry in the database, by the section of the file; the order is that of lists."""
NAMES: Mapping[Section, str] = dict.fromkeys(KINDS, "name") | dict.fromkeys(
    ("aliases", "catalog", "models"), "id"
)
PATHS: Mapping[Section, tuple[str, ...]] = {
    **{section: (section,) for section in KINDS},
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
        **dict.fromkeys(("template", "llamacpp.draft", "llamacpp.lora", "llamacpp.mmproj"), _PLACE),
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
    "models": (
        *("name", "description", "limits", "max_output_tokens", "networks", "price", "queue"),
        "sampling",
    ),
    "doors": (
        "models",
        "networks",
        "limits",
        "unknown_params",
        "long_output",
        "reasoning",
        "cache_scope",
    ),
    "policies": tuple(name for name in PolicySettings.__struct_fields__ if name != "name"),
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
        return tuple(_conflicts_with_file(entry, alone, index))
    origin = alone.origins.get(PATHS[entry.section], "line")
    if entry.section == "models" and alone.chosen:
        if entry.name not in alone.chosen:
            return ("`--model` of the command line leaves it out",)
    elif not origin.startswith("line"):
        return (f"{origin} says which {entry.section} there are",)
    if entry.section == "models":
        return (*_file_only(entry), *_model_refusals(entry.body))
    if entry.section == "doors":
        return tuple(_door_refusals(entry))
    return tuple(_file_only(entry))


def _conflicts_with_file(entry: Entry, alone: Loaded, index: int) -> Iterator[str]:
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
        if has_value(entry.body, path.split(".")):
            yield f"{path}: {words}"
    if isinstance(entry.body.get("proxy"), Mapping):
        yield f"proxy: {_PLACE}"


def _model_refusals(body: Mapping[str, Any]) -> Iterator[str]:
    engine, ref = body.get("engine", "llamacpp"), body.get("ref")
    if isinstance(engine, str) and engine not in _ENGINES:
        yield f"engine: only the file may name one other than {', '.join(_ENGINES)}"
    try:
        if engine != "fake" and isinstance(ref, str) and Reference.parse(ref).kind is Kind.PATH:
            yield f"ref: {_PLACE}; name weights like `hf:ORG/REPO`"
    except (BadReference, OSError):
        return  # the rules say so


def _door_refusals(entry: Entry) -> Iterator[str]:
    # Limits of a door that is gone do not open another.
    if entry.body.get("keys") not in (None, "accounts"):
        yield 'keys: only the file may say who enters, other than by `keys = "accounts"`'
    if "kind" not in entry.body and entry.name not in DEFAULT_DOORS:
        yield f'kind: is missing, and the file has no door "{entry.name}" to add this to'


def pop_name(section: Section, body: dict[str, Any]) -> str | None:
    """Take the name of an entry out of its table; a known provider has one by itself."""
    known = KNOWN_PROVIDERS.get(str(body.get("known"))) if section == "providers" else None
    name = body.pop(NAMES[section], known.name if known is not None else None)
    return name if isinstance(name, str) and name else None


def has_value(table: object, path: Sequence[str | int]) -> bool:
    """Return true if something stands at a path below nested tables."""
    for part in path:
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return True


# Entries of the configuration that do not come from the file.

Section = Literal[
    "providers", "aliases", "catalog", "models", "doors", "policies", "webhooks", "emails"
]
EntryKind = Literal[
    "provider", "alias", "catalog_model", "model", "door", "policy", "webhook", "email"
]
EntryKey = tuple[Section, str]
OFF = "all providers that it names are switched off"
_TARGETS: Mapping[Section, str] = {"aliases": "targets", "catalog": "endpoints"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A table of the file's form without its name and its key, or an addition to such a table."""

    section: Section
    name: str
    body: Mapping[str, Any]
    enabled: bool = True
    place: str = ""
    """File and line that it was read from, if it was."""

    @property
    def key(self) -> EntryKey:
        return self.section, self.name

    @property
    def origin(self) -> str:
        noun = KINDS[self.section].replace("_", " ")
        return self.place or f'the entry of {noun} "{self.name}"'


ReadWith = Callable[[Sequence[Entry], str | None], "Loaded"]
"""Reads the settings with some entries; with a text, the file is not read but says this."""


def merged(read: ReadWith, entries: Sequence[Entry], text: str | None = None) -> Loaded:
    """Return the settings with all entries that hold; ``text`` is what the file says, if known.

    The reasons why others are left out are in ``left_out``. Raises :class:`SettingsError` if the
    file does not hold alone.
    """
    alone = read((), text)
    left_out = {entry.key: reasons for entry in entries if (reasons := refusals(entry, alone))}
    tried = [one for one in entries if one.key not in left_out]
    usable = list(without_switched_off(tried, alone))
    left_out |= {
        now.key: (OFF,) for one, now in zip(tried, usable, strict=True) if _lost_targets(one, now)
    }
    wanted = [one for one in usable if one.enabled and one.key not in left_out]
    while wanted:
        try:
            return replace(read(wanted, alone.text), left_out=left_out)
        except SettingsError as error:
            left_out |= (faulty := _entry_problems(wanted, error.problems))
        wanted = [one for one in wanted if one.key not in faulty]
    return replace(alone, left_out=left_out)


def without_switched_off(entries: Sequence[Entry], alone: Loaded) -> Iterator[Entry]:
    """Yield the entries; targets that are entries which are switched off are removed.

    An entry that adds to what the file names is no target.
    """
    off = {one.key for one in entries if not one.enabled and filed_index(one, alone) is None}
    for entry in entries:
        label = _TARGETS.get(entry.section, "")
        targets = entry.body.get(label)
        if not isinstance(targets, list):
            yield entry
            continue
        kept = [each for each in targets if _target_key(each) not in off]
        yield replace(entry, body={**entry.body, label: kept})


def _lost_targets(before: Entry, after: Entry) -> bool:
    label = _TARGETS.get(before.section, "")
    return bool(before.body.get(label)) and not after.body.get(label)


def _target_key(target: object) -> EntryKey | None:
    if not isinstance(target, Mapping):
        return None
    provider = target.get("provider")
    if provider is None:
        return "models", str(target.get("model"))
    return "providers", str(provider)


def _entry_problems(
    entries: Sequence[Entry], problems: Sequence[Problem]
) -> dict[EntryKey, tuple[str, ...]]:
    # The file holds alone: where a problem names no entry, the newest one caused it.
    found: dict[EntryKey, tuple[str, ...]] = {}
    by_origin = {one.origin: one for one in entries}
    for problem in problems:
        places = (problem.where, problem.other)
        entry = next((by_origin[place] for place in places if place in by_origin), entries[-1])
        words = ": ".join(part for part in (_key_below_entry(problem.key), problem.advice) if part)
        found[entry.key] = (*found.get(entry.key, ()), words)
    return found


def _key_below_entry(key: str) -> str:
    section, bracket, rest = key.partition("[")
    if bracket and section in map(".".join, PATHS.values()):
        return rest.partition("]")[2].lstrip(".")
    return key
