"""Loads the settings in force from file, environment and flags, and reads files of entries.

Later wins: the tree's defaults, variables of other programs (``HF_TOKEN``),
the file, ``CAUSERIE_…`` variables, flags. Then values are derived from others: absolute paths, and
keys of doors that set none. The result is checked as a whole;
either all of it holds or nothing is used."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.inspect import is_struct_type
from msgspec.structs import replace

from causerie.providers.dialects import KNOWN_PROVIDERS
from causerie.settings import environment
from causerie.settings.console import is_data
from causerie.settings.decode import SettingsDecoder, alone, extras, fields, item_of, plain
from causerie.settings.doors import has_accounts
from causerie.settings.entries import (
    DEFAULT_DOORS,
    TABLES,
    Entry,
    EntryKey,
    EntryKind,
    has_value,
    pop_name,
)
from causerie.settings.environment import expanded
from causerie.settings.problems import Broken, Findings, Problem, SettingsError, dotted
from causerie.settings.rules import broken_rules
from causerie.settings.store import StoreSettings
from causerie.settings.toml import KeyPath, line_numbers, of_nearest
from causerie.settings.tree import DEFAULT_MODEL, ModelSettings, Settings
from causerie.settings.values import PLACES, Secret, secrets

_SQLITE = "sqlite:///"


def settled(settings: Settings, folder: Path, cache: Path, data: Path) -> Settings:
    """Return the settings with absolute paths, and with defaults that depend on other settings.

    Paths are relative to ``folder``; ``cache`` and ``data`` are used where no folder is set.
    """
    settings = _make_paths_absolute(settings, Settings, folder)
    server, weights = settings.server, settings.weights
    unset = settings.models == (DEFAULT_MODEL,) and not settings.providers
    serve = unset and not has_accounts(settings) if weights.serve is None else weights.serve
    host = server.host
    if host.startswith("[") and host.endswith("]"):  # an IPv6 address as in a URL
        host = host[1:-1]
    logos = {
        name: text if is_data(text) else _make_path_absolute(text, folder)
        for name, text in settings.branding.logos.items()
    }
    return replace(
        settings,
        server=replace(server, host=host),
        weights=replace(weights, cache=weights.cache or str(cache), serve=serve),
        store=_fill_store_url(settings.store, folder, data),
        branding=replace(settings.branding, logos=logos),
        doors=tuple(
            replace(each, keys="accounts" if each.kind in ("hosted", "router") else server.keys)
            if each.keys is None
            else each
            for each in settings.doors
        ),
        models=tuple(_make_ref_absolute(model, folder) for model in settings.models),
    )


def _make_paths_absolute(value: Any, value_type: Any, folder: Path) -> Any:
    if isinstance(value, Struct):
        inner = {
            name: _make_paths_absolute(getattr(value, name), field.type, folder)
            for name, field in fields(type(value)).items()
        }
        return replace(value, **inner)
    if isinstance(value, tuple):
        item = item_of(plain(alone(value_type)))
        return tuple(_make_paths_absolute(each, item, folder) for each in value)
    path = extras(alone(value_type)).get("path")
    if path is None or value is None:
        return value
    if path == "program" and "/" not in value and not value.startswith("~"):
        return value  # the shell finds it by its name
    return _make_path_absolute(value, folder)


def _fill_store_url(store: StoreSettings, folder: Path, data_folder: Path) -> StoreSettings:
    place = store.folder or str(data_folder)
    url = store.url or f"{_SQLITE}{place}/causerie.db"
    if url.startswith(_SQLITE):
        url = _SQLITE + _make_path_absolute(url.removeprefix(_SQLITE), folder)
    return replace(store, folder=place, url=url)


def _make_ref_absolute(model: ModelSettings, folder: Path) -> ModelSettings:
    ref = model.ref or ""
    is_file = model.engine == "vllm" or ref.endswith(".gguf")
    if ref.startswith((".", "/", "~")) or (is_file and ref and ":" not in ref):
        return replace(model, ref=_make_path_absolute(ref, folder))
    return model


def _make_path_absolute(path: str, folder: Path) -> str:
    return str((folder / expanded(path)).absolute())


# Layers: the file, variables, flags and entries.

FILE_NAME = "causerie.toml"
_BEHIND_NO_DOOR = {"provider", "policy", "webhook", "email"}
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


class Override(Struct, frozen=True):
    """A value from the command line. ``key`` is dotted; text is read as the setting's type."""

    key: str
    value: object
    flag: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Loaded settings with the origin of each value; ``ignored`` names variables without effect.

    ``text`` is what the file said, for whoever loads it with more: a pipe is read once.
    """

    settings: Settings
    file: Path | None = None
    origins: Mapping[KeyPath, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    text: str | None = field(default=None, repr=False)
    left_out: Mapping[EntryKey, tuple[str, ...]] = field(default_factory=dict)
    """Entries that are not in force although they are switched on, and why."""
    chosen: frozenset[str] = frozenset()
    """Ids of the only models that the command line wants; empty for all."""
    background: bool = False
    """Whether a command has started the service for itself and later ones; it ends by itself."""

    @property
    def blank(self) -> bool:
        return not any(origin.startswith("line ") for origin in self.origins.values())

    def where(self, path: KeyPath) -> str:
        """Return the origin of a value: flag, variable, or file and line."""
        return _format_origin(path, self.origins, self.file)


def _format_origin(path: KeyPath, origin_by_path: Mapping[KeyPath, str], file: Path | None) -> str:
    if (origin := of_nearest(path, origin_by_path)) is None:
        return str(file or "")
    line = origin.removeprefix("line ")
    return f"{file}:{line}" if line != origin else origin


@dataclass(slots=True)
class _Layers:
    values: dict[str, Any]
    origins: dict[KeyPath, str]
    file: Path | None
    text: str | None = None

    def put(self, path: KeyPath, value: object, origin: str) -> None:
        table: Any = self.values
        for part in path[:-1]:
            table = table.setdefault(part, {}) if isinstance(part, str) else table[part]
            if not isinstance(table, dict | list | tuple):
                return  # the decoder will say that a table belongs there
        for below in _walk_key_paths(table.get(path[-1]), path):
            self.origins.pop(below, None)
        table[path[-1]] = value
        self.origins[path] = origin

    def where(self, path: KeyPath) -> str:
        return _format_origin(path, self.origins, self.file)

    def all_origins(self) -> Mapping[KeyPath, str]:
        """Return the origin of each value, also inside of inline tables."""
        paths = _walk_key_paths(self.values)
        found = {path: of_nearest(path, self.origins) for path in paths}
        return {path: origin for path, origin in found.items() if origin} | self.origins


def _walk_key_paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    items: Iterable[tuple[Any, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for part, item in items:
        yield (*path, part)
        yield from _walk_key_paths(item, (*path, part))


def load(
    *,
    file: Path | None = None,
    text: str | None = None,
    overrides: Sequence[Override] = (),
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    entries: Sequence[Entry] = (),
) -> Loaded:
    """Return the settings in force. Raises :class:`SettingsError` with everything that is wrong.

    Without ``file``, ``CAUSERIE_CONFIG`` and then ``causerie.toml`` in the
    folder (the working directory) are looked for; none at all is fine. With
    ``text`` the file is not read: it says this. Files
    that settings name are relative to its folder.
    ``entries`` are added to what the file says.
    """
    environ = environment.variables() if environ is None else environ
    folder = folder or Path.cwd()
    layers = _read_file_layer(file, text, environ, folder)
    known = dict(leaves(Settings))
    _put_variables(layers, known, environ)
    problems = _put_overrides_and_list_problems(layers, known, overrides)
    _add_default_doors(layers.values, entries)
    _put_entries(layers, entries)
    _fill_known_providers(layers.values)
    decoder = SettingsDecoder(layers.where)
    settings = decoder.struct(Settings, layers.values)
    problems += decoder.problems
    base = layers.file.parent if layers.file is not None else folder
    settings = settled(
        settings, base, environment.cache_folder(environ), environment.data_folder(environ)
    )
    broken = [rule for rule in broken_rules(settings) if not rule.follows(decoder.faults)]
    problems += [_to_problem(rule, layers) for rule in broken if not _is_stored_key(rule, layers)]
    readable = {variable(path) for path in known if len(path) > 1} | environment.ELSEWHERE
    readable |= {secret.env for _, _, secret in secrets(settings) if secret.env}
    own = sorted(name for name in environ if name.startswith(environment.PREFIX))
    ignored = tuple(name for name in own if name not in readable)
    loaded = Loaded(settings, layers.file, layers.all_origins(), ignored, layers.text)
    if problems:
        raise SettingsError(problems, loaded)
    return loaded


def leaves(kind: type[msgspec.Struct], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and type of every setting that a variable or a flag can set."""
    for found in msgspec.structs.fields(kind):
        bare = plain(found.type)
        if is_struct_type(bare):
            yield from leaves(bare, (*path, found.name))
        elif "inline" not in extras(item_of(bare)):  # a list of places fits into no variable
            yield (*path, found.name), found.type


def variable(path: KeyPath) -> str:
    """Return the name of a setting's environment variable: ``CAUSERIE_SERVER_PORT``."""
    return environment.PREFIX + "_".join(str(part) for part in path).upper()


def _read_file_layer(
    file: Path | None, text: str | None, environ: Mapping[str, str], folder: Path
) -> _Layers:
    if file is None and environ.get(environment.CONFIG):
        file = environment.expanded(environ[environment.CONFIG])
    elif file is None and (folder / FILE_NAME).is_file():
        file = folder / FILE_NAME
    if file is None:
        return _Layers({}, {}, None)
    text, values = parsed(file, text)
    lines = {path: f"line {line}" for path, line in line_numbers(text).items()}
    return _Layers(values, lines, file, text)


def parsed(file: Path, text: str | None = None) -> tuple[str, dict[str, Any]]:
    """Parse a TOML file, or ``text`` in its place, to text and values; raise ``SettingsError``."""
    try:
        if text is None:
            text = file.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text)
    except OSError as error:
        reason = error.strerror or "cannot be read"
        raise SettingsError([Problem(str(file), "", f"{reason}; name a readable file")]) from error
    except UnicodeDecodeError as error:
        raise SettingsError([Problem(str(file), "", "is not UTF-8 text")]) from error
    except RecursionError as error:
        raise SettingsError([Problem(str(file), "", "has values nested too deeply")]) from error
    except tomllib.TOMLDecodeError as error:
        line = _LINE.search(str(error))
        place = f"{file}:{line.group(1)}" if line else str(file)
        raise SettingsError([Problem(place, "", _LINE.sub("", str(error)))]) from error


def _put_variables(
    layers: _Layers, type_by_path: Mapping[KeyPath, Any], environ: Mapping[str, str]
) -> None:
    for path, kind in type_by_path.items():
        foreign = extras(kind).get("variable")
        if foreign and environ.get(foreign) and not has_value(layers.values, path):
            layers.put(path, _parse_value(kind, environ[foreign]), f"variable {foreign}")
        own = variable(path)
        if environ.get(own) and len(path) > 1:  # lists of tables do not fit into a variable
            layers.put(path, _parse_value(kind, environ[own]), f"variable {own}")


def _put_overrides_and_list_problems(
    layers: _Layers, type_by_path: Mapping[KeyPath, Any], overrides: Sequence[Override]
) -> list[Problem]:
    problems = []
    for override in overrides:
        path: KeyPath = tuple(override.key.split("."))
        if path not in type_by_path:
            advice = "is not a setting that a flag can set; see `causerie check`"
            problems.append(Problem(override.flag, override.key, advice))
            continue
        value = override.value
        if isinstance(value, str):
            value = _parse_value(type_by_path[path], value)
        layers.put(path, value, override.flag)
    return problems


def _to_problem(rule: Broken, layers: _Layers) -> Problem:
    place = layers.where(rule.other) if rule.other is not None else ""
    advice = f"{rule.advice} ({place})" if place else rule.advice
    return Problem(layers.where(rule.path), dotted(rule.path), advice, place)


def _is_stored_key(rule: Broken, layers: _Layers) -> bool:
    origin = layers.origins.get(rule.path[:-1], "line")
    return not origin.startswith("line") and any(
        rule.path[:-2] == each.path and rule.path[-1] == each.key for each in TABLES.values()
    )


def _add_default_doors(values: dict[str, Any], entries: Sequence[Entry]) -> None:
    # Doors that only entries need come last, so that the door behind plain `/v1` stays.
    behind = {door: TABLES[kind].path[0] for door, kind in DEFAULT_DOORS.items()}
    filed = [door for door, section in behind.items() if values.get(section)]
    doors = values.get("doors")
    listed = doors if isinstance(doors, list) else []
    named = [one.get("kind") for one in listed if isinstance(one, dict)]
    if filed or (named and all(kind in DEFAULT_DOORS for kind in named)):
        values.setdefault("models", [])
    kinds = {entry.kind for entry in entries}
    added = [door for door, kind in DEFAULT_DOORS.items() if kind in kinds and door not in filed]
    if "doors" not in values and (filed or kinds - _BEHIND_NO_DOOR):
        own = ["endpoint"] if values.get("models", True) else []
        late = ["endpoint"] if "model" in kinds and not own else []
        doors = (*filed, *own, *added, *late)
        values["doors"] = [{"name": door, "kind": door} for door in doors]


def _put_entries(layers: _Layers, entries: Sequence[Entry]) -> None:
    filed: dict[KeyPath, Mapping[str, int]] = {}
    for entry in entries:
        path, label, tables = entry.table.path, entry.table.name, layers.values
        default = [msgspec.to_builtins(DEFAULT_MODEL)] if entry.kind == "model" else []
        for part in path[:-1]:
            tables = tables.setdefault(part, {})
        tables = tables.setdefault(path[-1], default)
        if path not in filed:
            places = reversed(list(enumerate(tables)))  # the first of each name counts
            names = ((table.get(label), index) for index, table in places)
            filed[path] = {name: index for name, index in names if isinstance(name, str)}
        index = filed[path].get(entry.name)
        if index is None:
            layers.origins[*path, len(tables)] = entry.origin
            default_door = entry.kind == "door" and entry.name in DEFAULT_DOORS
            kind = {"kind": entry.name} if default_door else {}
            tables.append({**kind, **entry.body, label: entry.name})
            continue
        for name, value in entry.body.items():
            layers.put((*path, index, name), value, entry.origin)


def _fill_known_providers(values: dict[str, Any]) -> None:
    providers = values.get("providers")
    for provider in providers if isinstance(providers, list) else ():
        if isinstance(provider, dict) and isinstance(provider.get("known"), str):
            known = KNOWN_PROVIDERS.get(provider["known"])
            if known is not None:
                filled = {"name": known.name, "base_url": known.base_url, "dialect": known.dialect}
                provider |= filled | provider


def _parse_value(value_type: Any, text: str) -> object:
    # What does not fit stays as it is: the decoder refuses it then.
    bare = plain(value_type)
    if bare is bool and text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    for value in (text, [_strip_quotes(part.strip()) for part in text.split(",")]):
        try:
            return msgspec.convert(value, bare, strict=False)
        except msgspec.ValidationError:
            continue
    return text


def _strip_quotes(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


# A file of entries for the database, in the form of the configuration: its tables, each checked
# alone. Whether they hold is decided with everything else that is in force.


def read_entry_file(file: Path) -> tuple[Sequence[Entry], Sequence[str]]:
    """Return the entries of a file, and the names of tables that are no entries.

    Raises :class:`SettingsError` with all problems.
    """
    text, values = parsed(file)
    lines, findings = line_numbers(text), Findings()
    found: dict[EntryKey, Entry] = {}
    for kind, form in TABLES.items():
        path = form.path
        for index, table in enumerate(_list_tables_at_path(file, path, values, findings)):
            place = f"{file}:{lines.get((*path, index)) or lines.get(path)}"
            with findings.collecting():
                entry = _build_entry(kind, table, place)
                if (other := found.get(entry.key)) is not None:
                    advice = f'"{entry.name}" stands here twice ({other.place})'
                    raise SettingsError([Problem(place, "", advice)])
                found[entry.key] = entry
    findings.end()
    paths, others = [each.path for each in TABLES.values()], []
    for name, value in values.items():
        inner = {path[1] for path in paths if len(path) > 1 and path[0] == name}
        if (name,) not in paths and not (isinstance(value, dict) and set(value) <= inner):
            others.append(name)
    return list(found.values()), others


def _list_tables_at_path(
    file: Path, path: Sequence[str], values: Mapping[str, Any], findings: Findings
) -> list[dict[str, Any]]:
    tables: Any = values
    for part in path:
        tables = tables.get(part, []) if isinstance(tables, dict) else tables
    if isinstance(tables, list) and all(isinstance(one, dict) for one in tables):
        return tables
    key = ".".join(path)
    findings.add([Problem(str(file), key, f"takes tables: write `[[{key}]]`")])
    return []


def _build_entry(kind: EntryKind, table: Mapping[str, Any], place: str) -> Entry:
    body = dict(msgspec.to_builtins(table))  # days become text, as the database keeps them
    if (name := pop_name(kind, body)) is None:
        raise SettingsError([Problem(place, TABLES[kind].name, "is missing; it takes a name")])
    label = TABLES[kind].key
    key = body.pop(label, None)
    try:
        secret = None if key is None else msgspec.convert(key, Secret)
    except msgspec.ValidationError:
        words = f"is no place of a key; write {PLACES}"
        raise SettingsError([Problem(place, label, words)]) from None
    if secret == Secret():
        raise SettingsError([Problem(place, label, f"names no place; write {PLACES}")])
    if secret is not None and secret.lifetime is not None:
        advice = "has a `lifetime`, and an import keeps what it reads once; keep it in the file"
        raise SettingsError([Problem(place, label, advice)])
    return Entry(kind, name, body, place=place, secret=secret)
