"""Projectors: the files (`mmproj`) that make an image into tokens of a text model.

A projector lies beside the weights, in a repository or in a folder, and fits models of one width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.gguf import Header, open_metadata, quantization_of_name

_NAME = re.compile(r"(?<![a-z0-9])mmproj(?![a-z0-9])", re.IGNORECASE)
# The smallest that loses nothing comes first.
_PREFERRED = ("F16", "BF16", "Q8_0", "F32")
_WORD = re.compile(r"[a-z0-9]+")


def choose_projector(files: Iterable[str]) -> tuple[str, ...]:
    """Return the name of the projector among the files of a repository; empty without one."""
    found = [name for name in files if name.lower().endswith(".gguf") and _NAME.search(name)]
    return tuple(sorted(found, key=_preference)[:1])


def projector_beside(header: Header) -> Path | None:
    """Return the projector in the folder of a model's weights, or ``None``. Blocks.

    Of several that fit the model, its name is likest to the chosen one's.
    """
    if _NAME.search(header.path.name):
        return None
    try:
        files = [file for file in header.path.parent.iterdir() if choose_projector([file.name])]
    except OSError:
        return None
    fitting = [file for file in files if _width(file) == header.embedding_length]
    own = _words(header.path)
    fitting.sort(key=lambda file: (-len(own & _words(file)), _preference(file.name)))
    return fitting[0] if fitting else None


def _preference(name: str) -> tuple[int, str]:
    kind = quantization_of_name(name.removesuffix(".gguf"))
    return _PREFERRED.index(kind) if kind in _PREFERRED else len(_PREFERRED), name


def _words(file: Path) -> set[str]:
    return set(_WORD.findall(file.stem.lower()))


def check_projector(file: Path) -> None:
    """Raise :class:`NotGguf` unless a file is a projector for images. Blocks."""
    with open_metadata(file) as data:
        if data.integer("clip.vision.projection_dim") is None:
            raise NotGguf(file, "it is no projector for images (`mmproj`)")


def reads_images_whole(file: Path) -> bool:
    """Return whether each token of an image sees all of them, which one step has to read then."""
    with open_metadata(file) as data:
        return data.text("clip.projector_type").startswith("gemma")


def _width(file: Path) -> int | None:
    try:
        with open_metadata(file) as data:
            return data.integer("clip.vision.projection_dim")
    except NotGguf:
        return None
