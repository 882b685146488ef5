"""A model folder as engines read it: once for all that serve it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from causerie.engines.base import EngineFailed, PromptTooLong
from causerie.engines.files import Files
from causerie.engines.reading import Readings
from causerie.engines.vllm.tokenizer import FolderTokenizer
from causerie.engines.vocabulary import IndexedVocabulary, characters
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
        self.weights = weights
        self.tokenizer_file = path / TOKENIZER
        self._readings = Readings()
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

    async def tokenize(
        self, pieces: Sequence[str | int], *, special: bool, context: int
    ) -> list[int]:
        """Return the token ids; no beginning-of-text token is added.

        Raises :class:`PromptTooLong` where they cannot fit: reading the text takes its time.
        """
        known = self._words
        if known is None:
            known = await asyncio.to_thread(self.words)
        tokenizer, words = known
        least = words.least(pieces)
        if least > context:
            raise PromptTooLong(least, context)
        read = partial(asyncio.to_thread, tokenizer.ids, pieces, special=special)
        return await self._readings.of(characters(pieces), read)
