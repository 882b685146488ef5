"""The environment variables that the program reads, all of them.

Nothing else in the program looks at ``os.environ``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from causerie.engines.weights.reference import Library, load_library
from causerie.settings.problems import Problem, SettingsError

PREFIX = "CAUSERIE_"
CONFIG = "CAUSERIE_CONFIG"
CLIENT_KEY = "CAUSERIE_API_KEY"
WORKER = "CAUSERIE_WORKER"
ELSEWHERE = {
    CONFIG,
    CLIENT_KEY,
    WORKER,
    "CAUSERIE_TEMPLATES",
    "CAUSERIE_TEST_GGUF",
    "CAUSERIE_TEST_VLLM",
    "CAUSERIE_TEST_VLLM_MODEL",
}


def variables() -> Mapping[str, str]:
    return dict(os.environ)


def client_key() -> str | None:
    return os.environ.get(CLIENT_KEY, "").strip() or None


def no_colour() -> bool:
    """Return true if ``NO_COLOR`` forbids coloured output (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def expanded(path: str) -> Path:
    """Return the path with its ``~`` expanded, or unchanged if that user has no home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _find_user_folder(variable: str, default_folder: str, environ: Mapping[str, str]) -> Path:
    base = Path(environ.get(variable, ""))
    try:
        return (base if base.is_absolute() else Path(default_folder).expanduser()) / "causerie"
    except RuntimeError as error:
        advice = f"this user has no home, so there is no {default_folder}; set {variable}, or HOME"
        raise SettingsError([Problem("", "", advice)]) from error


# Folders of the user by the XDG Base Directory Specification: for weights, the user's own files
# about this program, data to keep, and what commands remember.
cache_folder = partial(_find_user_folder, "XDG_CACHE_HOME", "~/.cache")
config_folder = partial(_find_user_folder, "XDG_CONFIG_HOME", "~/.config")
data_folder = partial(_find_user_folder, "XDG_DATA_HOME", "~/.local/share")
state_folder = partial(_find_user_folder, "XDG_STATE_HOME", "~/.local/state")


def own_library(environ: Mapping[str, str]) -> Library:
    """Return the library of short model names, shipped and the user's; raise ``BadLibrary``."""
    own = None
    with suppress(SettingsError):  # a user without a home has no file there
        own = config_folder(environ) / "library.toml"
    return load_library(own)


def runtime_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder through which the user's other commands find a running service."""
    base = Path(environ.get("XDG_RUNTIME_DIR", ""))
    return base / "causerie" if base.is_absolute() else state_folder(environ) / "run"
