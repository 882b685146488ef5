"""The settings that a command runs with: its options over the file and the environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.settings import Loaded, load
from causerie.settings.entries import Entry
from causerie.settings.load import Override


def settings_in_force(
    config: Path | None,
    pairs: list[str] | None,
    *more: Override,
    text: str | None = None,
    entries: Sequence[Entry] = (),
) -> Loaded:
    """File (or its ``text``), variables and flags put together. Raises :class:`SettingsError`."""
    overrides = [_override(pair) for pair in pairs or ()]
    return load(file=config, text=text, overrides=[*overrides, *more], entries=entries)


def flag(name: str, key: str, value: object) -> list[Override]:
    return [] if value is None else [Override(key, value, name)]


def _override(pair: str) -> Override:
    key, equals, value = pair.partition("=")
    if not equals:
        raise CommandFailed(
            f"--set takes KEY=VALUE, like server.port=9000, and got {pair!r}", ExitCode.USAGE
        )
    return Override(key.strip(), value.strip(), "--set")
