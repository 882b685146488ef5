"""Completions by a vLLM of a model whose vocabulary is read here."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

from causerie.engines.base import EngineFailed, Output, Stopped, TextRequest, Token
from causerie.engines.grammar_matcher import Admitted, Spelling
from causerie.engines.vllm.client import VllmClient
from causerie.engines.vocabulary import IndexedVocabulary
from causerie.engines.watchdog import Pulse

Completion = AbstractAsyncContextManager[AsyncGenerator[Output, None]]


def completion(
    client: VllmClient, words: IndexedVocabulary, request: TextRequest, pulse: Pulse
) -> Completion:
    """Return one completion; what comes triggers ``pulse``."""
    ends = words.vocabulary.end
    spelling = Spelling(words.vocabulary, frozenset(ends), request.visible, request.prompt)
    return client.complete(request, ends, spelling, pulse)


async def sampled(completed: Completion) -> Token:
    """Return the first token of a completion; raise :class:`EngineFailed` if there is none."""
    async with completed as outputs, aclosing(outputs):
        async for output in outputs:
            if isinstance(output, Token):
                return output
            if isinstance(output, Stopped):
                break
    raise EngineFailed("the engine drew no token")


def of_admitted(request: TextRequest, admitted: Admitted) -> TextRequest:
    """Return the request for one of the tokens that a grammar admits."""
    return replace(request, grammar=admitted.grammar())
