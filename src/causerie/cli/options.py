"""Options that several commands take, and how they become settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from causerie.cli.exits import CommandFailed, ExitCode
from causerie.settings import Loaded, load
from causerie.settings.entries import Entry
from causerie.settings.load import Override

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Configuration file; otherwise ./causerie.toml where there is one."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set one setting, like `engines.memory_budget=6GiB`."
    ),
]


Engine = Annotated[
    Literal["llamacpp", "openvino", "vllm"] | None,
    typer.Option(
        "--engine",
        help="llamacpp and openvino load a GGUF file, vllm a model folder. [default: llamacpp]",
    ),
]


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
    """The override of a flag that was given."""
    return [] if value is None else [Override(key, value, name)]


def _override(pair: str) -> Override:
    key, equals, value = pair.partition("=")
    if not equals:
        raise CommandFailed(
            f"--set takes KEY=VALUE, like server.port=9000, and got {pair!r}", ExitCode.USAGE
        )
    return Override(key.strip(), value.strip(), "--set")
