"""Writes what a probe found into the configuration file: whole and checked, or not at all."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from causerie.probe.entry import ProbedModel
from causerie.providers.dialect import Dialect
from causerie.providers.known import KNOWN_PROVIDERS
from causerie.settings import Problem, SettingsError, load
from causerie.settings.edit import CannotEdit, by_hand, with_table
from causerie.settings.values import Secret


class CannotWrite(Exception):
    """The file stays as it is. ``by_hand`` is what can be put into it by hand, if that helps;
    ``configuration``: what is in the file is wrong."""

    def __init__(self, message: str, *, by_hand: str = "", configuration: bool = False) -> None:
        super().__init__(message)
        self.by_hand = by_hand
        self.configuration = configuration

    @property
    def whole(self) -> str:
        """Return the error, and the text to put in by hand."""
        if not self.by_hand:
            return str(self)
        return f"{self}; put this below your provider by hand:\n\n{self.by_hand}"


@dataclass(frozen=True, slots=True)
class NewProvider:
    """A provider that the file may not have yet; ``key`` is the place of its key.

    ``name`` is that of a provider that the file has.
    """

    base_url: str
    key: Secret | None = None
    dialect: Dialect | None = None
    name: str | None = None

    def values(self, taken: Collection[object] = ()) -> dict[str, object]:
        """As the configuration has it, under a name that is not ``taken``."""
        key = msgspec.to_builtins(self.key) if self.key is not None else {}
        place = {name: value for name, value in key.items() if value is not None}
        known = {
            "name": provider_name(self.base_url, taken),
            "base_url": self.base_url,
            "dialect": self.dialect.name if self.dialect is not None else None,
            "key": place or None,
        }
        return {name: value for name, value in known.items() if value is not None}


def write_entries(file: Path, provider: NewProvider, entries: Sequence[ProbedModel]) -> None:
    """Put the entries into ``file``; comments and order of the rest stay.

    A provider that the file does not have is added. The new text is loaded as
    the service would load it, and takes the file's place in one step. Raises
    :class:`CannotWrite`, with the file untouched.
    """
    try:
        _write(file, provider, entries)
    except OSError as error:
        words = f"{file} cannot be written ({error.strerror})"
        raise CannotWrite(words, by_hand=tables(entries)) from error


def tables(entries: Sequence[ProbedModel]) -> str:
    """The entries as text, to be put below their provider by hand."""
    return "\n\n".join(by_hand(("providers", "models"), one.values()) for one in entries)


def _write(file: Path, provider: NewProvider, entries: Sequence[ProbedModel]) -> None:
    real = file.resolve()
    before = real.read_bytes() if real.exists() else b""
    after = _edited(file, before, provider, entries)
    handle, name = tempfile.mkstemp(prefix=f".{real.name}.", suffix=".toml", dir=real.parent)
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(after)
            out.flush()
            os.fsync(out.fileno())
        if real.exists():
            _give_rights(real.stat(), fresh)
        _check(file, after.decode("utf-8-sig"))
        if (real.read_bytes() if real.exists() else b"") != before:
            raise CannotWrite(f"{file} has been changed meanwhile; try again")
        fresh.replace(real)
    finally:
        fresh.unlink(missing_ok=True)


def _give_rights(before: os.stat_result, fresh: Path) -> None:
    """Keep the file readable for its readers, even if another user (root, say) writes it."""
    try:
        if sys.platform != "win32":
            os.chown(fresh, before.st_uid, before.st_gid)
    except PermissionError:
        if not before.st_mode & stat.S_IROTH:
            raise
    fresh.chmod(before.st_mode & 0o777)


def _edited(
    file: Path, before: bytes, provider: NewProvider, entries: Sequence[ProbedModel]
) -> bytes:
    try:
        text = before.decode("utf-8-sig")
        unix = text.replace("\r\n", "\n")
        edited = _with_entries(unix, provider, entries)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CannotWrite(f"{file} is not valid TOML: {error}", configuration=True) from error
    except CannotEdit as error:
        raise CannotWrite(f"{file}: {error}", by_hand=tables(entries)) from error
    if unix != text:
        edited = edited.replace("\n", "\r\n")
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    return mark + edited.encode()


def _with_entries(text: str, provider: NewProvider, entries: Sequence[ProbedModel]) -> str:
    index = provider_index(text, provider.base_url, provider.name)
    if index is None and provider.name is not None:
        raise CannotEdit(f"the provider {provider.name} is not in it")
    if index is None:
        text = with_table(text, ("providers",), provider.values(_names(text)), key="base_url")
        index = provider_index(text, provider.base_url, provider.name)
    if index is None:
        raise CannotEdit("the provider could not be added")
    for entry in entries:
        text = with_table(
            text, ("providers", index, "models"), entry.values(), remarks={"probed": entry.evidence}
        )
    return text


def provider_index(text: str, base_url: str, name: str | None = None) -> int | None:
    """Return the index of the file's provider with this name, or without one this address."""
    providers = tomllib.loads(text).get("providers")
    for index, one in enumerate(providers if isinstance(providers, list) else ()):
        if not isinstance(one, dict):
            continue
        if name is not None and one.get("name") == name:
            return index
        if name is None and _address(one) == base_url:
            return index
    return None


def _address(provider: Mapping[str, object]) -> str:
    """Return the base URL of the file's provider, also of one that is only named as known."""
    known = KNOWN_PROVIDERS.get(str(provider.get("known")))
    given = provider.get("base_url") or (known.base_url if known is not None else "")
    return str(given).rstrip("/")


def _names(text: str) -> list[object]:
    providers = tomllib.loads(text).get("providers")
    every = providers if isinstance(providers, list) else ()
    return [one.get("name") for one in every if isinstance(one, dict)]


def provider_name(base_url: str, taken: Collection[object] = ()) -> str:
    """A name made of host and port: ``10-0-0-5-8000``, with a number where that is taken."""
    words = re.sub(r"[^a-z0-9]+", "-", urlsplit(base_url).netloc.rpartition("@")[2].lower())
    name = words.strip("-")[:60] or "provider"
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def _check(file: Path, text: str) -> None:
    """Reject new problems only: flags of a service may mend those that were there before."""
    found = _problems(file, text)
    before = {(one.key, one.advice) for one in _problems(file)} if found else ()
    new = [str(one) for one in found if (one.key, one.advice) not in before]
    if new:
        words = "\n".join(new)
        raise CannotWrite(
            f"{file} stays as it is, because with the entry it would not hold:\n{words}",
            configuration=True,
        )


def _problems(file: Path, text: str | None = None) -> Sequence[Problem]:
    try:
        load(file=file, text=text)
    except SettingsError as error:
        return error.problems
    return ()
