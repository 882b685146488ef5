"""A generation under a grammar that has accepted a part, on a scripted engine."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from causerie.engines.base import NotAdmitted, Output, Stopped, TextRequest, Token
from causerie.engines.grammar_matcher import (
    Admitted,
    GrammarMatcher,
    Guided,
    Spelling,
    guidance_tokenizer,
)
from causerie.engines.weights.vocabulary import read_vocabulary
from causerie.protocol.parameters import SamplingParams


async def test_a_limit_in_the_middle_of_a_character_is_reached(gguf: Path) -> None:
    """llama.cpp counts what it made of one and tells nothing of it: whoever asked is to know."""
    vocabulary = read_vocabulary(gguf)
    letter = vocabulary.tokens.index(b"a")

    async def outputs() -> AsyncGenerator[Output, None]:
        yield Stopped("length", 1, 1, 0)

    @asynccontextmanager
    async def run(request: TextRequest) -> AsyncIterator[AsyncGenerator[Output, None]]:
        yield outputs()

    async def draw(request: TextRequest, admitted: Admitted) -> Token:
        raise AssertionError("nothing is left to be drawn")

    tokens = guidance_tokenizer(vocabulary, lambda text: [letter])
    guide = GrammarMatcher(tokens, vocabulary, '%llguidance {}\nstart: "aé"', [letter])
    request = TextRequest(prompt=[letter], max_tokens=1)
    guided = Guided(run, draw, request, guide, Spelling(vocabulary, frozenset(), ()))
    assert [each async for each in guided.outputs()] == [Stopped("length", 1, 1, 0)]


async def test_no_two_draws_have_the_same_seed(gguf: Path) -> None:
    """Otherwise the number by which a token was refused would choose the one in its place."""
    vocabulary = read_vocabulary(gguf)
    wrong, right = vocabulary.tokens.index(b"b"), vocabulary.tokens.index(b"a")
    seeds: list[int | None] = []

    async def outputs() -> AsyncGenerator[Output, None]:
        yield Token(wrong, "b")

    @asynccontextmanager
    async def run(request: TextRequest) -> AsyncIterator[AsyncGenerator[Output, None]]:
        seeds.append(request.sampling.seed)
        yield outputs()

    async def draw(request: TextRequest, admitted: Admitted) -> Token:
        seeds.append(request.sampling.seed)
        return Token(right, "a")

    tokens = guidance_tokenizer(vocabulary, lambda text: [right])
    for _ in range(2):
        guide = GrammarMatcher(tokens, vocabulary, "%llguidance {}\nstart: /a*/", [])
        sampling = SamplingParams(seed=2**64 - 1)
        request = TextRequest(prompt=[right], max_tokens=3, sampling=sampling)
        guided = Guided(run, draw, request, guide, Spelling(vocabulary, frozenset(), ()))
        assert len([each async for each in guided.outputs()]) == 4
    assert seeds[:6] == seeds[6:]
    assert len(set(seeds)) == 6
    assert seeds[0] == 2**64 - 1


def test_a_long_part_is_followed_token_by_token_where_all_at_once_is_too_much(gguf: Path) -> None:
    vocabulary = read_vocabulary(gguf)
    schema = {"type": "string", "pattern": r"^(?:\S+\s+){0,49}\S+$", "maxLength": 600}
    grammar = f"%llguidance {{}}\nstart: %json {json.dumps(schema)}"
    tokens = guidance_tokenizer(vocabulary, lambda text: [])

    def behind(text: str) -> GrammarMatcher:
        ids = [vocabulary.tokens.index(bytes([byte])) for byte in text.encode()]
        return GrammarMatcher(tokens, vocabulary, grammar, ids)

    assert behind('"' + "a train station " * 3 + 'x"').admitted().ends
    with pytest.raises(NotAdmitted):
        behind("x")
