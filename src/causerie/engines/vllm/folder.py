"""A model folder as engines read it: once for all that serve it."""

from __future__ import annotations

import threading
from pathlib import Path

from causerie.engines.base import EngineFailed
from causerie.engines.files import Files
from causerie.engines.vllm.tokenizer import FolderTokenizer
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.folder import TOKENIZER, read_folder
from causerie.engines.weights.vocabulary import read_vocabulary


class ServedFolder:
    """The folder at ``path``; raises :class:`EngineFailed` where it holds no model."""

    def __init__(self, path: Path, *, weights: bool) -> None:
        try:
            self.facts = read_folder(path, weights=weights)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        self.files = Files(self.facts.files)
        self.tokenizer_file = path / TOKENIZER
        self._lock = threading.Lock()
        self._words: tuple[FolderTokenizer, IndexedVocabulary] | None = None

    def words(self) -> tuple[FolderTokenizer, IndexedVocabulary]:
        """Return tokenizer and vocabulary. Blocks.

        Raises :class:`WeightsError` or :class:`OSError`.
        """
        with self._lock:
            if self._words is None:
                tokenizer = FolderTokenizer(self.tokenizer_file)
                indexed = IndexedVocabulary.of(read_vocabulary(self.tokenizer_file))
                self._words = tokenizer, indexed
            return self._words
