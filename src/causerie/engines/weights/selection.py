"""Selection of a repository's files that a reference means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from causerie.engines.weights.errors import Ambiguous, NoGgufFile, WeightsNotFound
from causerie.engines.weights.folder import OPENVINO_MODEL

CONFIG = "config.json"  # makes a folder with weights a model folder
SAFETENSORS = ".safetensors"

_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})$")
_COMPANION = re.compile(r"(?<![a-z0-9])(mmproj|imatrix)(?![a-z0-9])", re.IGNORECASE)
_PREFERRED = ("Q4_K_M", "Q4_0", "Q8_0")
_LISTED = 12  # names in a message


def choose(repository: str, files: Iterable[str], wanted: str | None) -> tuple[str, ...]:
    """Return the files of the one model that is meant, all parts in order.

    ``wanted`` is a file's name, a quantisation such as ``Q4_K_M``, or ``None``
    for the usual one. Raises :class:`WeightsNotFound` or :class:`Ambiguous`.
    """
    every = list(files)
    groups = _groups(file for file in every if file.lower().endswith(".gguf"))
    if not groups:
        raise NoGgufFile(repository, _instead(every))
    if wanted is None:
        stem = _usual(repository, [name for name in groups if not _COMPANION.search(name)])
    elif wanted.lower().endswith(".gguf"):
        stem = _by_name(repository, groups, wanted)
    else:
        stem = _by_quant(repository, groups, wanted)
    return _complete(repository, groups[stem])


def _instead(files: Sequence[str]) -> str:
    look = "look for a repository with GGUF in it"
    if OPENVINO_MODEL in files:
        return f'`engine = "openvino"` serves its {OPENVINO_MODEL}, or {look}'
    if any(file.endswith(SAFETENSORS) for file in files):
        return f'`engine = "vllm"` serves its .safetensors, or {look}'
    return look


def _groups(files: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the files by model: the parts of a split model together."""
    groups: dict[str, list[str]] = {}
    for file in sorted(files):
        groups.setdefault(_SPLIT.sub("", file[: -len(".gguf")]), []).append(file)
    return groups


def _matching(names: Iterable[str], quant: str) -> list[str]:
    pattern = re.compile(rf"(?<![a-z0-9]){re.escape(quant)}(?![a-z0-9_])", re.IGNORECASE)
    return [name for name in names if pattern.search(name)]


def _usual(repository: str, names: Sequence[str]) -> str:
    for quant in _PREFERRED:
        if found := _matching(names, quant):
            return _only(repository, found)
    if not names:
        raise WeightsNotFound(f"{repository} holds no model file, only companions; name the file.")
    return _only(repository, names)


def _by_quant(repository: str, groups: Mapping[str, list[str]], quant: str) -> str:
    names = [name for name in groups if not _COMPANION.search(name)]
    found = _matching(names, quant)
    if not found:
        raise WeightsNotFound(f"{repository} has no file for {quant!r}; it has {_listed(names)}.")
    return _only(repository, found)


def _by_name(repository: str, groups: Mapping[str, list[str]], wanted: str) -> str:
    exact = [stem for stem, files in groups.items() if wanted in files]
    found = exact or [
        stem for stem, files in groups.items() if wanted.lower() in _names(stem, files)
    ]
    if not found:
        raise WeightsNotFound(f"{repository} has no file {wanted!r}; it has {_listed(groups)}.")
    return _only(repository, found)


def _names(stem: str, files: Sequence[str]) -> set[str]:
    """Return the accepted names of a model's file: with or without folder, whole or by parts."""
    written = {*files, f"{stem}.gguf"}
    return {name.lower() for name in (*written, *(file.rsplit("/", 1)[-1] for file in written))}


def _only(repository: str, found: Sequence[str]) -> str:
    if len(found) > 1:
        raise Ambiguous(
            f"Several files of {repository} fit: {_listed(found)}; name one, "
            f"like hf:{repository}:{found[0].rsplit('/', 1)[-1]}.gguf."
        )
    return found[0]


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
