"""Writes what a probe found into the configuration file: whole and checked, or not at all."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.probe.entry import Entry
from causerie.settings import SettingsError, load
from causerie.settings.edit import CannotEdit, by_hand, with_table
from causerie.settings.values import Secret
from causerie.upstreams.dialect import Dialect


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """What an endpoint is that the file does not have yet; ``key`` is where its key is found."""

    base_url: str
    key: Secret | None = None
    dialect: Dialect | None = None

    def values(self) -> dict[str, object]:
        """As the configuration has it."""
        key = msgspec.to_builtins(self.key) if self.key is not None else {}
        place = {name: value for name, value in key.items() if value is not None}
        known = {
            "name": endpoint_name(self.base_url),
            "base_url": self.base_url,
            "dialect": self.dialect.name if self.dialect is not None else None,
            "key": place or None,
        }
        return {name: value for name, value in known.items() if value is not None}


def write_entries(file: Path, endpoint: NewEndpoint, entries: Sequence[Entry]) -> None:
    """Put the entries into ``file``; comments and order of the rest stay.

    An endpoint that the file does not have is added. The new text is loaded as
    the service would load it, and takes the file's place in one step. Raises
    :class:`CommandFailed`, with the file untouched.
    """
    file = file.resolve()
    before = file.read_bytes() if file.exists() else b""
    after = _edited(file, before, endpoint, entries)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".toml", dir=file.parent)
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(after)
            out.flush()
            os.fsync(out.fileno())
        if file.exists():
            fresh.chmod(file.stat().st_mode & 0o777)
        _check(file, fresh)
        if (file.read_bytes() if file.exists() else b"") != before:
            raise CommandFailed(f"{file} has been changed meanwhile; run the probe again")
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def _edited(file: Path, before: bytes, endpoint: NewEndpoint, entries: Sequence[Entry]) -> bytes:
    try:
        text = before.decode("utf-8-sig")
        unix = text.replace("\r\n", "\n")
        edited = _with_entries(unix, endpoint, entries)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CommandFailed(f"{file} is not valid TOML: {error}", ExitCode.CONFIGURATION) from error
    except CannotEdit as error:
        blocks = "\n\n".join(by_hand(("endpoints", "models"), one.values()) for one in entries)
        raise CommandFailed(
            f"{file}: {error}; put this below your endpoint by hand:\n\n{blocks}"
        ) from error
    if unix != text:
        edited = edited.replace("\n", "\r\n")
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    return mark + edited.encode()


def _with_entries(text: str, endpoint: NewEndpoint, entries: Sequence[Entry]) -> str:
    index = endpoint_index(text, endpoint.base_url)
    if index is None:
        text = with_table(text, ("endpoints",), endpoint.values(), key="base_url")
        index = endpoint_index(text, endpoint.base_url)
    if index is None:
        raise CannotEdit("the endpoint could not be added")
    for entry in entries:
        text = with_table(
            text,
            ("endpoints", index, "models"),
            entry.values(),
            remarks={"probed": entry.evidence},
        )
    return text


def endpoint_index(text: str, base_url: str) -> int | None:
    """Which of the file's endpoints has this address."""
    endpoints = tomllib.loads(text).get("endpoints")
    for index, one in enumerate(endpoints if isinstance(endpoints, list) else ()):
        if isinstance(one, dict) and str(one.get("base_url", "")).rstrip("/") == base_url:
            return index
    return None


def endpoint_name(base_url: str) -> str:
    """A name made of host and port: ``10-0-0-5-8000``."""
    words = re.sub(r"[^a-z0-9]+", "-", urlsplit(base_url).netloc.rpartition("@")[2].lower())
    return words.strip("-")[:63] or "endpoint"


def _check(file: Path, fresh: Path) -> None:
    try:
        load(file=fresh)
    except SettingsError as error:
        words = str(error).replace(str(fresh), str(file))
        raise CommandFailed(
            f"{file} stays as it is, because with the entry it would not hold:\n{words}",
            ExitCode.CONFIGURATION,
        ) from error
