"""Values derived from other settings: absolute paths, keys of doors that set none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from causerie.settings.console import is_data
from causerie.settings.decode import alone, extras, fields, plain
from causerie.settings.environment import expanded
from causerie.settings.store import StoreSettings
from causerie.settings.tree import DoorSettings, ModelSettings, Settings
from causerie.settings.values import Keys

_SQLITE = "sqlite:///"


def settled(settings: Settings, folder: Path, cache: Path, data: Path) -> Settings:
    """Return the settings with nothing left to derive.

    Paths are relative to ``folder``; ``cache`` and ``data`` are used where no folder is set.
    """
    settings = _with_absolute_paths(settings, Settings, folder)
    server, weights = settings.server, settings.weights
    host = server.host
    if host.startswith("[") and host.endswith("]"):  # an IPv6 address as in a URL
        host = host[1:-1]
    logos = {
        name: text if is_data(text) else _absolute(text, folder)
        for name, text in settings.branding.logos.items()
    }
    return replace(
        settings,
        server=replace(server, host=host),
        weights=replace(weights, cache=weights.cache or str(cache)),
        store=_with_url(settings.store, folder, data),
        branding=replace(settings.branding, logos=logos),
        doors=tuple(replace(each, keys=_door_keys(each, server.keys)) for each in settings.doors),
        models=tuple(_with_absolute_ref(model, folder) for model in settings.models),
    )


def _with_absolute_paths(value: Any, kind: Any, folder: Path) -> Any:
    if isinstance(value, Struct):
        inner = {
            name: _with_absolute_paths(getattr(value, name), field.type, folder)
            for name, field in fields(type(value)).items()
        }
        return replace(value, **inner)
    if isinstance(value, tuple):
        item = get_args(plain(alone(kind)))[0]
        return tuple(_with_absolute_paths(each, item, folder) for each in value)
    path = extras(alone(kind)).get("path")
    if path is None or value is None:
        return value
    if path == "program" and "/" not in value and not value.startswith("~"):
        return value  # the shell finds it by its name
    return _absolute(value, folder)


def _with_url(store: StoreSettings, folder: Path, data: Path) -> StoreSettings:
    place = store.folder or str(data)
    url = store.url or f"{_SQLITE}{place}/causerie.db"
    if url.startswith(_SQLITE):
        url = _SQLITE + _absolute(url.removeprefix(_SQLITE), folder)
    return replace(store, folder=place, url=url)


def _door_keys(door: DoorSettings, keys: Keys | None) -> Keys | None:
    if door.keys is not None:
        return door.keys
    return "accounts" if door.kind in ("hosted", "router") else keys


def _with_absolute_ref(model: ModelSettings, folder: Path) -> ModelSettings:
    ref = model.ref or ""
    is_file = model.engine == "vllm" or ref.endswith(".gguf")
    if ref.startswith((".", "/", "~")) or (is_file and ref and ":" not in ref):
        return replace(model, ref=_absolute(ref, folder))
    return model


def _absolute(path: str, folder: Path) -> str:
    return str((folder / expanded(path)).absolute())
