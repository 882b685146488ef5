"""Short names of models on the command line: the shipped library with the user's own over it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from causerie.engines.weights.library import Library, load_library
from causerie.engines.weights.reference import Kind, Reference
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


def ref_of(reference: Reference) -> str:
    """Return the reference as settings hold it: a path is absolute.

    One that looks like a repository stays, because the failure is to name it.
    """
    own = reference.kind is Kind.PATH and not reference.like_repository
    return str(reference.path.absolute()) if own else str(reference)


def same_weights(ref: str | None, wanted: Reference) -> bool:
    """Return whether ``ref`` of some settings means the same weights as ``wanted``."""
    if ref is None:
        return False
    return ref_of(Reference.parse(ref).settled) == ref_of(wanted.settled)
