"""The interface of text engines: a prompt, sampling settings and a grammar in, tokens out.

An engine knows nothing about messages, roles, tools or reasoning; all of that
is ``chat``'s. It knows tokens, their text, and how to stop when it is told to.
Everything here is a value except :class:`TextEngine`, which an engine from
elsewhere implements and offers under the entry-point group ``causerie.engines``.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from msgspec import Struct

from causerie.protocol.parameters import SamplingDefaults, SamplingParams


class EngineState(Enum):
    """Lifecycle state of an engine. Only ``READY`` generates."""

    ABSENT = "absent"  # weights known, nothing loaded; loads on demand
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"  # the last start or run failed; a restart is scheduled


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One model's engine as ``/health`` and the metrics show it."""

    model: str
    state: EngineState
    slots: int = 0
    busy: int = 0  # slots that are generating
    restarts: int = 0
    progress: float | None = None  # from 0 to 1 while loading, if known
    idle_seconds: float | None = None  # since it last moved (a token, a prompt batch, a load step)
    memory_bytes: int | None = None  # an estimate until loaded
    context: int | None = None  # tokens of one request, prompt and output together, if known
    cache_tokens: int | None = None  # of all requests together, if less than `context` of each
    unload_seconds: float | None = None  # time after which the engine is unloaded unless it is used
    pid: int | None = None  # of the engine's process, where it is a child of ours
    detail: str = ""
    members: tuple[EngineStatus, ...] = ()  # of a pool: its engines, each by its own name
    prefix_source: str = ""  # who tells a pool member's prompts: `kv_events`, `sent` or both


class Image(Struct, frozen=True, gc=False):
    """An image that has been checked, in a format that engines read."""

    base64: str
    digest: bytes  # SHA-256 of what a request holds of it

    def placeholders(self, count: int) -> list[int]:
        """Return ``count`` negative ids that stand for this image's tokens in a prompt."""
        numbers = array("I", hashlib.shake_256(self.digest).digest(count * array("I").itemsize))
        return [(number | 2**31) - 2**32 for number in numbers]


@dataclass(frozen=True, slots=True)
class PicturedPrompt:
    """The first ``tokens`` ids of a prompt, as the texts and images that they stand for."""

    pieces: tuple[str | Image, ...]  # each text of a control token in them is meant as one
    tokens: int


@dataclass(frozen=True, slots=True)
class TextRequest:
    """The request of one generation: its prompt, sampling, grammar and bounds."""

    prompt: Sequence[int]  # token ids; of images, their placeholders
    max_tokens: int
    sampling: SamplingParams = SamplingParams()  # noqa: RUF009 - frozen
    """A parameter that is not set is neutral."""
    grammar: str | None = None  # llguidance grammar in Lark syntax that the whole output follows
    logprobs: int | None = None  # alternatives of each token; 0: its own alone; `None`: none at all
    visible: tuple[str, ...] = ()  # control tokens whose text is part of the output, not dropped
    ignore_eos: bool = False  # forbids the end of the text
    accepted: tuple[int, ...] = ()  # last tokens of the prompt, behind which the grammar continues
    resumed: str = ""  # what the grammar accepted before `accepted`, however the prompt spells it
    shared: int = 0  # tokens at its beginning that other conversations may share; 0 if unknown
    scope: str = ""  # cache scope: the engine reuses no part of a prompt of another scope
    pictured: PicturedPrompt | None = None  # if the prompt has images


@dataclass(frozen=True, slots=True)
class TokenAlternative:
    """One candidate token for a position of the output; ``logprob`` is a natural logarithm."""

    id: int
    text: str
    raw: bytes
    logprob: float


class Token(Struct, frozen=True):
    """One generated token."""

    id: int
    # What it adds to the decoded output: nothing for a token that ends within a UTF-8 sequence,
    # whose successor adds the whole character, or for a control token that is not visible.
    text: str
    raw: bytes = b""
    logprob: float | None = None  # set if log-probabilities were requested; so is `top`
    top: tuple[TokenAlternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The first item of a generation, if the engine tells when it begins to read the prompt."""

    cached_tokens: int  # of the prompt, which came from the engine's prefix cache


@dataclass(frozen=True, slots=True)
class Stopped:
    """The last item of a generation, exactly once, unless it was abandoned or failed."""

    reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  # of the prompt, which came from the engine's prefix cache


Output = Started | Token | Stopped


@dataclass(frozen=True, slots=True)
class RecommendedSampling:
    """Sampling that a model's publisher recommends. A parameter that is not set is neutral."""

    usual: SamplingDefaults
    without_thinking: SamplingDefaults  # the same as `usual` unless the publisher tells them apart


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts that the engine knows about the loaded model."""

    template: str  # the model's own Jinja chat template (may be empty)
    context_length: int  # most tokens that prompt and output of ONE request may have together
    parallel: int
    control_tokens: Mapping[str, int]  # ids by text of all that is not read as plain text
    bos_token: str
    eos_token: str
    end_tokens: tuple[int, ...]  # ids that end a text
    fingerprint: str  # engine, build and weights in one short string
    vocabulary: str | None = None
    """Path of a file that has it; ``None``: :mod:`causerie.chat.compiler` takes one of bytes."""
    vision: bool = False  # the model takes images
    without_vision: str = ""  # what an operator can do so that it takes images; empty: nothing
    words: str = ""  # equal for engines whose token ids mean the same; empty if unknown
    size: int | None = None  # number of tokens of the vocabulary; `None` if unknown
    sampling: RecommendedSampling | None = None  # `None` if nobody recommends any


class EngineFailed(Exception):
    """The engine broke, or went away, before or in the middle of a generation."""

    refused = False  # whether the engine is well and takes no such request

    def __init__(self, message: str, *, loading: bool = False, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.loading = loading  # it is only not there yet
        self.retry_after = retry_after  # in seconds


class EngineRefused(EngineFailed):
    """The engine works, but refuses this kind of request."""

    refused = True


class LoadFailed(EngineFailed):
    """The model could not be loaded, and trying again soon will hardly help."""


class PromptTooLong(Exception):
    """The prompt of ``tokens`` tokens does not fit into a context of ``context_length`` tokens."""

    def __init__(self, tokens: int, context_length: int) -> None:
        super().__init__(f"{tokens} prompt tokens in a context of {context_length}")
        self.tokens = tokens
        self.context_length = context_length


class ImageRefused(Exception):
    """The engine cannot read this image, or the image is too large for it."""


class NotAdmitted(Exception):
    """The grammar does not admit the output that a request says was accepted already."""


class EmbeddingEngine(Protocol):
    """A model that makes vectors of texts. All methods may raise :class:`EngineFailed`."""

    @property
    def slots(self) -> int: ...

    async def facts(self) -> ModelFacts: ...
    async def input_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text for :meth:`embed`; control tokens count as plain text.

        May raise :class:`PromptTooLong`.
        """

    async def embed(self, inputs: Sequence[Sequence[int]]) -> list[bytes]:
        """Return the vector of each input, as little-endian 32-bit floats of length 1."""


class ImageEngine(Protocol):
    """A text engine that reads images; its facts say ``vision``."""

    async def pictured_tokens(self, pieces: Sequence[str | Image]) -> list[int]:
        """Return the ids of a prompt in which images stand between texts, as the engine reads it.

        Each text of a control token becomes that token, and an image its placeholders. May raise
        :class:`EngineFailed`, :class:`PromptTooLong` and :class:`ImageRefused`.
        """


class TextEngine(Protocol):
    """A model that continues text.

    All methods may raise :class:`EngineFailed`. ``generate`` enters when the
    engine has accepted the request and leaves with the engine's slot freed,
    whatever the reason for leaving (finished, abandoned, cancelled, failed);
    after entering, iteration yields perhaps one ``Started``, tokens, and then
    one ``Stopped``.
    """

    async def facts(self) -> ModelFacts:
        """Return the facts of the model; load it first when it is absent."""

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        """Return the token ids of the pieces in order; ids among them pass through unchanged.

        With ``special`` the text of a control token becomes that token; without
        it every character is plain text. No beginning-of-text token is added.
        May raise :class:`PromptTooLong`, with the least that they can be, where
        a text is too long to fit however it is read.
        """

    async def texts(self, tokens: Sequence[int], *, visible: Sequence[str] = ()) -> list[str]:
        """Return the text that each of these tokens adds to an output, as in :class:`Token`."""

    def generate(self, request: TextRequest) -> AbstractAsyncContextManager[AsyncIterator[Output]]:
        """Run one generation, and iterate over its outputs; refusals are raised on entering.

        :class:`PromptTooLong` where it does not fit, :class:`NotAdmitted` where
        the grammar cannot go on behind ``TextRequest.resumed`` and ``accepted``.
        """
