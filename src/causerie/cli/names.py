"""Short names of models on the command line: the shipped library with the user's own over it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from causerie.engines.weights.library import Library, load_library
from causerie.settings import SettingsError
from causerie.settings.environment import config_folder, variables

FILE_NAME = "library.toml"


def library() -> Library:
    """Return the names in force; raise ``BadLibrary`` where the user's file is wrong."""
    return load_library(_own())


def _own() -> Path | None:
    with suppress(SettingsError):  # a user without a home has no file there
        return config_folder(variables()) / FILE_NAME
    return None
