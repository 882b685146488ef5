"""Common part of the engines that run weights on this disk in a child process of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from causerie.engines.base import EngineFailed, ModelFacts, RecommendedSampling
from causerie.engines.files import Files
from causerie.engines.process import C
from causerie.engines.reading import Readings
from causerie.engines.recommended_sampling import of_gguf
from causerie.engines.supervised import SupervisedEngine
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.weights.errors import WeightsError
from causerie.engines.weights.gguf import Header, parts, read_header


class EmbeddedLaunch(Protocol):
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


L = TypeVar("L", bound=EmbeddedLaunch)


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Weights on this disk, and what they say of their model."""

    files: Files
    """All that make it this model and no other, as they were before they were read."""
    size: int
    """Of the weights, in bytes."""
    architecture: str
    chat_template: str
    """Empty if there is none."""
    vocabulary: Path
    """The file that it is in."""
    sampling: RecommendedSampling | None


def gguf_model(
    weights: Path, ref: str, alongside: Sequence[Path] = ()
) -> tuple[Header, LocalModel]:
    """Return the header of a GGUF file, and its model; raise :class:`EngineFailed`.

    ``ref`` says where the weights are from, which may name the model's family. ``alongside`` are
    other files that the engine loads.
    """
    files = Files((*parts(weights), *alongside))
    try:
        header = read_header(weights)
    except (WeightsError, OSError) as error:
        raise EngineFailed(str(error)) from error
    return header, LocalModel(
        files=files,
        size=header.file_size,
        architecture=header.architecture,
        chat_template=header.chat_template,
        vocabulary=header.path,
        sampling=of_gguf(header.sampling, (*header.names, ref, header.architecture)),
    )


class EmbeddedEngine(SupervisedEngine[C], Generic[C, L]):
    """One local model, which a child process loads as ``launch`` says."""

    def __init__(self, model: str, local: LocalModel, launch: L, load_seconds: float) -> None:
        super().__init__(model, local.files, load_seconds)
        self._local = local
        self._launch = launch
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
        local, vocabulary = self._local, words.vocabulary
        mark = self._files.mark(local.size)
        return ModelFacts(
            template=local.chat_template,
            context_length=self.context,
            parallel=self.slots,
            control_tokens=control,
            bos_token=words.text(vocabulary.bos),
            eos_token=words.text(vocabulary.eos),
            end_tokens=vocabulary.end,
            fingerprint=f"{build}-{mark}",
            vocabulary=str(local.vocabulary),
            words=words.digest,
            size=len(vocabulary.tokens),
            sampling=local.sampling,
        )
