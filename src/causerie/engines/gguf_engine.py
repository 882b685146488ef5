"""Common part of the engines that run a GGUF file in a child process of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from causerie.engines.base import EngineFailed, ModelFacts
from causerie.engines.files import Files
from causerie.engines.process import C
from causerie.engines.reading import Readings
from causerie.engines.recommended_sampling import of_gguf
from causerie.engines.supervised import SupervisedEngine
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.gguf import parts, read_header


class GgufLaunch(Protocol):
    """Decisions that are made before a start."""

    @property
    def context(self) -> int:
        """Return the tokens of one request."""
        ...

    @property
    def parallel(self) -> int:
        """Return the number of concurrent requests."""
        ...

    @property
    def memory(self) -> int:
        """Return the estimated memory, in bytes."""
        ...


L = TypeVar("L", bound=GgufLaunch)


class GgufEngine(SupervisedEngine[C], Generic[C, L]):
    """One GGUF file, which a child process loads as ``_launch`` says; a subclass sets that.

    ``ref`` says where the weights are from, which may name the model's family. ``alongside`` are
    other files that the child loads. Making one reads the file's header; raises
    :class:`EngineFailed` where it is no model.
    """

    _launch: L

    def __init__(
        self,
        model: str,
        weights: Path,
        alongside: Sequence[Path],
        ref: str,
        load_seconds: float,
    ) -> None:
        # As they were before they were read: a restart takes these and no others.
        super().__init__(model, Files((*parts(weights), *alongside)), load_seconds)
        try:
            self._header = read_header(weights)
        except (WeightsError, OSError) as error:
            raise EngineFailed(str(error)) from error
        self._ref = ref
        self._facts: ModelFacts | None = None
        self._readings = Readings()

    @property
    def slots(self) -> int:
        """Return the number of concurrent requests."""
        return self._launch.parallel

    @property
    def memory_bytes(self) -> int:
        """Return the estimated memory, in bytes."""
        return self._launch.memory

    @property
    def context(self) -> int:
        """Return the maximum tokens of one request, prompt and output together."""
        return self._launch.context

    def _said(self, words: IndexedVocabulary, control: Mapping[str, int], build: str) -> ModelFacts:
        """Return the facts of a model with these control tokens; ``build`` names the engine's."""
        header, vocabulary = self._header, words.vocabulary
        mark = self._files.mark(header.file_size)
        return ModelFacts(
            template=header.chat_template,
            context_length=self.context,
            parallel=self.slots,
            control_tokens=control,
            bos_token=words.text(vocabulary.bos),
            eos_token=words.text(vocabulary.eos),
            end_tokens=vocabulary.end,
            fingerprint=f"{build}-{mark}",
            vocabulary=str(header.path),
            words=words.digest,
            size=len(vocabulary.tokens),
            sampling=of_gguf(header.sampling, (*header.names, self._ref, header.architecture)),
        )
