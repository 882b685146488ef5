"""Selection of a repository's files that form a model folder, and a check for missing ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from causerie.engines.weights.errors import NotForOpenVino, WeightsNotFound
from causerie.engines.weights.folder import OPENVINO
from causerie.engines.weights.selection import CONFIG, SAFETENSORS

INDEX = "model.safetensors.index.json"  # which file of a split model holds which tensor

# Nothing that is run when it is read: code, or pickles, the weights of old.
_KINDS = (SAFETENSORS, ".json", ".jinja", ".txt", ".model", ".tiktoken")
_PICKLES = (".bin", ".pt", ".pth")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def is_of_folder(name: str) -> bool:
    """Return whether a file of this name belongs to a model folder; never in a subfolder."""
    return "/" not in name and name.endswith(_KINDS)


def choose_folder(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of the repository's model folder, weights first. Raises
    :class:`WeightsNotFound`."""
    every = sorted(files)
    chosen = [name for name in every if is_of_folder(name)]
    weights = [name for name in chosen if name.endswith(SAFETENSORS)]
    if CONFIG not in chosen or not weights:
        raise WeightsNotFound(f"{repository} {_lack(every, with_weights=bool(weights))}")
    return (*weights, *(name for name in chosen if name not in weights))


def choose_openvino(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a repository that was converted for OpenVINO, weights first.

    Raises :class:`NotForOpenVino` for another one.
    """
    every = sorted(files)
    small = [name for name in every if is_of_folder(name) and not name.endswith(SAFETENSORS)]
    missing = next((name for name in (*OPENVINO, CONFIG) if name not in every), None)
    if missing is not None:
        raise NotForOpenVino(f"{repository} holds no {missing}; it is no text model for OpenVINO.")
    return (*OPENVINO, *(name for name in small if name != INDEX))


def choose_outline(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of the folder but for its weights. Raises :class:`WeightsNotFound`."""
    every = sorted(files)
    if CONFIG not in every:
        raise WeightsNotFound(f"{repository} {_lack(every, with_weights=True)}")
    small = (name for name in every if is_of_folder(name) and name != INDEX)
    return tuple(name for name in small if not name.endswith(SAFETENSORS))


def _lack(files: Collection[str], *, with_weights: bool) -> str:
    """Return why ``files`` are no model folder."""
    if OPENVINO[0] in files:
        return "was converted for OpenVINO; it is for the engine openvino."
    if any(name.lower().endswith(".gguf") for name in files):
        return "is no model folder but holds .gguf files, which are for the engine llamacpp."
    if with_weights:
        return f"holds no {CONFIG}, which says what the model is; it is no model folder."
    if any(name.endswith(_PICKLES) for name in files):
        return (
            "holds its weights as pickles only, which may run code when they are read; "
            "look for a repository with .safetensors."
        )
    return "holds no .safetensors file; look for a repository with weights in that format."


def ensure_complete(repository: str, index: Path, files: Collection[str]) -> None:
    """Raise :class:`WeightsNotFound` if the ``index`` of a split model names more than
    ``files``."""
    try:
        named = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WeightsNotFound(f"The {INDEX} of {repository} cannot be read: {error}.") from None
    if lacking := sorted(named.difference(files)):
        raise WeightsNotFound(
            f"{repository} lacks {len(lacking)} of the {len(named)} files that its {INDEX} names, "
            f"{lacking[0]!r} first; it is incomplete."
        )
