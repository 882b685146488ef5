"""The vocabulary of a model on disk, however it is stored."""

from __future__ import annotations

from pathlib import Path

from causerie.engines.weights import gguf, tokenizer_file
from causerie.engines.weights.folder import TOKENIZER
from causerie.engines.weights.tokens import TokenTable, TokenType

__all__ = ["TokenTable", "TokenType", "read_vocabulary"]


def read_vocabulary(path: Path) -> TokenTable:
    """Return the vocabulary in a ``tokenizer.json``, or in the GGUF file of any other name.

    Raises :class:`NotModelFolder` or :class:`NotGguf`. Needs about 100 ms for
    the largest GGUF file, and a second for the largest ``tokenizer.json``.
    """
    if path.name == TOKENIZER:
        return tokenizer_file.read_vocabulary(path)
    return gguf.read_vocabulary(path)
