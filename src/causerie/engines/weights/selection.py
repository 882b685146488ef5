"""Selection of a repository's files: those that a reference means, and those of a model folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from causerie.engines.weights.errors import Ambiguous, NoGgufFile, NotForOpenVino, WeightsNotFound
from causerie.engines.weights.folder import CONFIG, INDEX, OPENVINO, OPENVINO_MODEL

SAFETENSORS = ".safetensors"

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_COMPANION = re.compile(r"(?<![a-z0-9])(mmproj|imatrix)(?![a-z0-9])", re.IGNORECASE)
_PREFERRED = ("Q4_K_M", "Q4_0", "Q8_0")
_LISTED = 12  # names in a message


def choose_gguf(repository: str, files: Iterable[str], wanted: str | None) -> tuple[str, ...]:
    """Return the files of the one model that is meant, all parts in order.

    ``wanted`` is a file's name, a quantisation such as ``Q4_K_M``, or ``None``
    for the usual one. Raises :class:`WeightsNotFound` or :class:`Ambiguous`.
    """
    every = list(files)
    groups = _groups(file for file in every if file.lower().endswith(".gguf"))
    if not groups:
        instead = "look for a repository with GGUF in it"
        if OPENVINO_MODEL in every:
            instead = f'`engine = "openvino"` serves its {OPENVINO_MODEL}, or {instead}'
        elif any(file.endswith(SAFETENSORS) for file in every):
            instead = f'`engine = "vllm"` serves its .safetensors, or {instead}'
        raise NoGgufFile(repository, instead)
    if wanted is not None and wanted.lower().endswith(".gguf"):
        found = _named(groups, wanted)
        if not found:
            raise WeightsNotFound(f"{repository} has no file {wanted!r}; it has {_listed(groups)}.")
    else:
        found = _of_quantization(repository, groups, wanted)
    if len(found) > 1:
        raise Ambiguous(
            f"Several files of {repository} fit: {_listed(found)}; name one, "
            f"like hf:{repository}:{found[0].rsplit('/', 1)[-1]}.gguf."
        )
    return _complete(repository, groups[found[0]])


def _groups(files: Iterable[str]) -> Mapping[str, list[str]]:
    # The parts of a split model belong together.
    groups: dict[str, list[str]] = {}
    for file in sorted(files):
        groups.setdefault(_SPLIT.sub("", file[: -len(".gguf")]), []).append(file)
    return groups


def _of_quantization(repository: str, stems: Iterable[str], wanted: str | None) -> Sequence[str]:
    names = [name for name in stems if not _COMPANION.search(name)]
    for quant in _PREFERRED if wanted is None else [wanted]:
        pattern = re.compile(rf"(?<![a-z0-9]){re.escape(quant)}(?![a-z0-9_])", re.IGNORECASE)
        if found := [name for name in names if pattern.search(name)]:
            return found
    if wanted is not None:
        raise WeightsNotFound(f"{repository} has no file for {wanted!r}; it has {_listed(names)}.")
    if not names:
        raise WeightsNotFound(f"{repository} holds no model file, only companions; name the file.")
    return names


def _named(groups: Mapping[str, list[str]], wanted: str) -> Sequence[str]:
    exact = [stem for stem, files in groups.items() if wanted in files]
    return exact or [
        stem
        for stem, files in groups.items()
        if any(
            wanted.lower() in (name.lower(), name.lower().rsplit("/", 1)[-1])
            for name in (*files, f"{stem}.gguf")
        )
    ]


def _listed(names: Iterable[str]) -> str:
    every = [f"{name}.gguf" for name in names]
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return ", ".join(every[:_LISTED]) + more


def _complete(repository: str, files: Sequence[str]) -> tuple[str, ...]:
    match = _SPLIT.search(files[0][: -len(".gguf")])
    if match is not None and len(files) != int(match.group(2)):
        raise WeightsNotFound(
            f"{repository} holds {len(files)} of the {int(match.group(2))} parts of "
            f"{_SPLIT.sub('', files[0][: -len('.gguf')])}; the repository is incomplete."
        )
    return tuple(files)


# Nothing that is run when it is read: code, or pickles, the weights of old.
_KINDS = (SAFETENSORS, ".json", ".jinja", ".txt", ".model", ".tiktoken")
_PICKLES = (".bin", ".pt", ".pth")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def is_of_folder(name: str) -> bool:
    """Return whether a file of this name belongs to a model folder; never in a subfolder."""
    return "/" not in name and name.endswith(_KINDS)


def choose_folder(repository: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a model folder, weights first; raise :class:`WeightsNotFound`."""
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
    """Raise :class:`WeightsNotFound` if the ``index`` names other files than ``files``."""
    try:
        named = set(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WeightsNotFound(f"The {INDEX} of {repository} cannot be read: {error}.") from None
    if lacking := sorted(named.difference(files)):
        raise WeightsNotFound(
            f"{repository} lacks {len(lacking)} of the {len(named)} files that its {INDEX} names, "
            f"{lacking[0]!r} first; it is incomplete."
        )
