"""A text engine and what its generations come to, for tests of engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from causerie.engines.base import ModelFacts, Output, Started, Stopped, TextRequest, Token
from causerie.engines.fleet import ManagedEngine
from causerie.engines.weights.gguf import Header

CONTEXT = 512
SLOTS = 2
THREADS = 1  # more wait for each other in a spin, which on a busy machine takes for ever
HEADER = Header(
    path=Path("model.gguf"),
    file_size=2**30,
    architecture="llama",
    context_length=32768,
    block_count=16,
    embedding_length=1024,
    head_count_kv=(8,) * 16,
    key_length=64,
    value_length=64,
    latent_length=0,
    vocabulary_size=32000,
    chat_template="",
    names=(),
    sampling={},
)
"""The header of a model file that does not exist."""


@dataclass(frozen=True, slots=True)
class Vllm:
    """A vLLM that is installed, the small model as a folder for it, and how it starts soonest."""

    command: str
    folder: Path
    args: tuple[str, ...] = ("--enforce-eager",)


@dataclass(frozen=True, slots=True)
class Run:
    """One generation that came to its end."""

    started: tuple[Started, ...]
    tokens: tuple[Token, ...]
    stopped: Stopped

    @property
    def text(self) -> str:
        """The decoded output."""
        return "".join(token.text for token in self.tokens)

    @property
    def ids(self) -> list[int]:
        """The tokens as numbers."""
        return [token.id for token in self.tokens]


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine that is ready, and its facts."""

    engine: ManagedEngine
    facts: ModelFacts
    lacks: frozenset[str] = frozenset()
    """Parameters that it cannot honour, and `cached_tokens` where it does not tell them."""

    def needs(self, ability: str) -> None:
        """Skip the test where the engine lacks the ability."""
        if ability in self.lacks:
            pytest.skip(f"this engine has no {ability}, and says so")

    async def prompt(self, text: str) -> list[int]:
        """A user's message, in the form that both models know."""
        written = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        return await self.engine.tokenize([written], special=True)

    async def run(self, request: TextRequest) -> Run:
        """Generate to the end; what comes, comes in order."""
        items: list[Output] = []
        async with self.engine.generate(request) as output:
            async for item in output:
                items.append(item)
        *before, stopped = items
        assert isinstance(stopped, Stopped)
        started = tuple(item for item in before if isinstance(item, Started))
        tokens = tuple(item for item in before if isinstance(item, Token))
        assert [*started, *tokens] == before
        assert len(started) <= 1
        return Run(started, tokens, stopped)
