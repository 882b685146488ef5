"""Errors of getting weights, each with one sentence for a person."""

from __future__ import annotations

from pathlib import Path

_ANOTHER = "another folder with `weights.cache` (CAUSERIE_WEIGHTS_CACHE)"


class WeightsError(Exception):
    """Weights could not be had; the text is one sentence for a person."""


class BadReference(WeightsError):
    """The text is no valid reference to weights."""


class BadLibrary(WeightsError):
    """The user's file of short names cannot be read, or is malformed."""


class WeightsNotFound(WeightsError):
    """There is no such file, repository, package or variant."""


class NoGgufFile(WeightsNotFound):
    """A repository holds no GGUF file; the message ends with ``instead``: what to do."""

    def __init__(self, repository: str, instead: str) -> None:
        super().__init__(f"{repository} holds no .gguf file; {instead}.")
        self.repository = repository


class NotForOpenVino(WeightsNotFound):
    """The repository holds no model that was converted for OpenVINO."""


class Ambiguous(WeightsError):
    """Several files fit the reference."""


class Gated(WeightsError):
    """The repository wants a token, or one with more rights."""


class NoNetwork(WeightsError):
    """The server could not be reached, or broke off too often."""


class Offline(WeightsError):
    """The weights are not here and the network may not be asked."""


class CacheUnusable(WeightsError):
    """The folder of the cache cannot be read or written."""

    def __init__(self, folder: Path, error: OSError) -> None:
        why = error.strerror or error
        super().__init__(f"The cache folder {folder} cannot be used: {why}; choose {_ANOTHER}.")


class NoSpace(WeightsError):
    """The disk is too full: ``needed`` and ``free`` are in bytes."""

    def __init__(self, folder: Path, needed: int, free: int) -> None:
        super().__init__(
            f"{folder} has {free / 1e9:.2f} GB free and the weights need {needed / 1e9:.2f} GB; "
            f"free some space or choose {_ANOTHER}."
        )


class ChecksumMismatch(WeightsError):
    """The downloaded file does not have the announced checksum."""

    def __init__(self, what: str, expected: str, found: str) -> None:
        super().__init__(
            f"{what} has the SHA-256 {found} where {expected} was announced; "
            "it was thrown away, try again."
        )


class NotGguf(WeightsError):
    """The file at ``path`` is not a GGUF file that can be read; ``why`` says what is wrong."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a usable GGUF file: {why}.")


class NotModelFolder(WeightsError):
    """The folder at ``path`` is not a model that can be read; ``why`` says what is wrong."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a usable model folder: {why}.")
