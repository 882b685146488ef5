"""Errors of a configuration: their place, and the right form.

Knows no particular setting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from causerie.protocol.nearest import ALIKE, nearest
from causerie.settings.toml import KeyPath

if TYPE_CHECKING:
    from causerie.settings.load import Loaded


class Problem(Struct, frozen=True):
    """One error in a configuration."""

    where: str
    """A file and line, a variable or a flag."""
    key: str
    """Dotted name of the setting."""
    advice: str
    """The error, and the right form."""
    other: str = ""
    """The place of another setting, which this one meets."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.advice) if part)


class Broken(Struct, frozen=True):
    """A broken rule between settings, at the key ``path``; ``other`` is the other key concerned.

    ``relies_on`` are other settings that the rule has read: where one of them is wrong itself,
    or a name in such a list of tables is, the rule says nothing.
    """

    path: KeyPath
    advice: str
    other: KeyPath | None = None
    relies_on: tuple[KeyPath, ...] = ()

    def follows(self, faults: Sequence[KeyPath]) -> bool:
        """Return true if the rule may be broken only because settings at ``faults`` are wrong."""
        places = [self.path] if self.other is None else [self.path, self.other]
        return any(
            any(place[: len(fault)] == fault for place in places)
            or any(_concerns_place(fault, place) for place in self.relies_on)
            or (fault[:-1] == self.path[: len(fault) - 1] and f"`{fault[-1]}`" in self.advice)
            for fault in faults
        )


def _concerns_place(fault: KeyPath, place: KeyPath) -> bool:
    rest = fault[len(place) :]
    return fault[: len(place)] == place and (len(rest) < 2 or rest[-1] in ("id", "name", "aliases"))


def dotted(path: KeyPath) -> str:
    """Return the path as people write it: ``models[0].id``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def tables(owner: object, *sections: str) -> Iterator[tuple[KeyPath, Any]]:
    """Yield path and struct of each table in the lists that ``sections`` name in ``owner``."""
    for section in sections:
        for index, one in enumerate(getattr(owner, section)):
            yield (section, index), one


def repeated(places: Iterable[tuple[KeyPath, str]]) -> Iterator[tuple[KeyPath, str, KeyPath]]:
    """Yield path, name and first path of each name that an earlier path has already."""
    first: dict[str, KeyPath] = {}
    for path, name in places:
        if (other := first.setdefault(name, path)) is not path:
            yield path, name, other


def taken(places: Iterable[tuple[KeyPath, str]]) -> Iterator[Broken]:
    """Yield a problem for each name that an earlier path has already."""
    for path, name, other in repeated(places):
        yield Broken(path, f'"{name}" is taken; names are unique', other)


def no_such(noun: str, name: str, known: Collection[str]) -> str:
    """Return the message for an unknown name, with the names that are known."""
    return f'no {noun} "{name}"; known: {", ".join(known) or "none"}'


def suggestion(name: str, known: Collection[str]) -> str:
    """Return a hint for an unknown name: the known name that it resembles, or all known names."""
    near = nearest(name, known, ALIKE)
    return f"did you mean `{near}`?" if near else f"known: {', '.join(known)}"


class SettingsError(Exception):
    """The configuration cannot be used; ``problems`` has at least one entry.

    ``partial`` has defaults or stand-ins where a value is wrong; it serves for further checks
    only, and is unset where the file could not be parsed.
    """

    def __init__(self, problems: Sequence[Problem], partial: Loaded | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.partial = partial


class Findings:
    """Collects the problems of several checks of one configuration; all of them run."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, problems: Iterable[Problem]) -> None:
        """Add the problems of a check, except for keys that have problems already."""
        told = {problem.key for problem in self.problems}
        self.problems += [each for each in problems if not each.key or each.key not in told]

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Catch a :class:`SettingsError` that the block raises, and add its problems."""
        try:
            yield
        except SettingsError as error:
            self.add(error.problems)

    def end(self) -> None:
        if self.problems:
            raise SettingsError(self.problems)
