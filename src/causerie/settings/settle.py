"""What follows from other settings: absolute paths, keys of doors that set none.

Files that settings name are relative to the folder of the configuration file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from causerie.settings.tree import Model, Settings


def settled(settings: Settings, folder: Path, cache: Path) -> Settings:
    """The tree with nothing left to derive; ``cache`` is the folder used where none is set."""
    weights = settings.weights
    keys = settings.server.keys
    kept = _absolute(weights.cache, folder) if weights.cache is not None else str(cache)
    return msgspec.structs.replace(
        settings,
        weights=msgspec.structs.replace(weights, cache=kept),
        doors=tuple(
            msgspec.structs.replace(door, keys=keys if door.keys is None else door.keys)
            for door in settings.doors
        ),
        models=tuple(_model(model, folder) for model in settings.models),
    )


def _model(model: Model, folder: Path) -> Model:
    options = msgspec.structs.replace(
        model.llamacpp,
        lora=tuple(_absolute(path, folder) for path in model.llamacpp.lora),
        draft=_absolute(model.llamacpp.draft, folder) if model.llamacpp.draft else None,
    )
    return msgspec.structs.replace(
        model,
        llamacpp=options,
        ref=_absolute(model.ref, folder) if model.ref and _is_path(model.ref) else model.ref,
        template=_absolute(model.template, folder) if model.template else None,
    )


def _is_path(ref: str) -> bool:
    return ref.startswith((".", "/", "~")) or (ref.endswith(".gguf") and ":" not in ref)


def _absolute(path: str, folder: Path) -> str:
    return str((folder / Path(path).expanduser()).absolute())
