"""Prompts with images for one child, which takes each as a text with markers and its images.

The child splits the text at a marker of its own, a secret, puts an image in the place of each,
and reads each part with control tokens. So every text here comes from
:class:`~causerie.engines.base.PicturedPrompt`, in which each text of a control token is meant as
one. What a model has generated since has ids alone. Its text is read once more, and refused if it
holds another control token than they do: a model that repeats a user must not forge one either.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from causerie.engines.base import (
    EngineFailed,
    EngineRefused,
    Image,
    ImageRefused,
    PicturedPrompt,
    TextRequest,
)
from causerie.engines.weights.vocabulary import TokenTable

Ask = Callable[[str, str, object], Awaitable[Any]]  # a method, a path and a body

NO_TOKEN = -1
LETTER = "a"  # a text that every vocabulary has tokens for
_MOST_COUNTS = 4096  # images whose tokens are known; each takes about 200 bytes
# What the chat around an image takes is found with one of 32 times 32 black pixels.
_BLACK = Image(b64encode(b"P6 32 32 255\n" + bytes(32 * 32 * 3)).decode(), b"")


def parted(tokens: Sequence[int]) -> list[list[int]]:
    """Split tokens into parts, each of which ends before a ``NO_TOKEN``."""
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == NO_TOKEN:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts[:-1]


@dataclass(eq=False)
class ImagePrompts:
    """Makes prompts with images for one child, and counts the tokens of images."""

    ask: Ask
    marker: str  # of the child
    vocabulary: TokenTable
    control: frozenset[int]  # ids of all its control tokens
    _token_counts: dict[bytes, int] = field(default_factory=dict)  # tokens, by digest
    _chat_overhead_tokens: int | None = None  # tokens of a chat around one image
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # a large image takes 1 GB to count
    _bos: int | None = None  # the token that the child puts before a prompt with images

    @classmethod
    async def of(cls, ask: Ask, vocabulary: TokenTable, control: frozenset[int]) -> ImagePrompts:
        """Return the maker for a loaded child; raise ``EngineFailed`` if it reads no images."""
        facts = await ask("GET", "/props", None)
        if not facts.get("modalities", {}).get("vision"):
            raise EngineFailed("the projector is not for images")
        prompts = cls(ask, facts["media_marker"], vocabulary, control)
        whole = await prompts._tokenize([LETTER], special=False, affixes=True)
        if whole[:1] == [vocabulary.bos]:
            prompts._bos = vocabulary.bos
        return prompts

    async def tokens(self, pieces: Sequence[str | Image]) -> list[int]:
        """Return the token ids of a prompt that consists of texts and images."""
        pieces = self._without_bos(pieces)
        texts = [part for piece in pieces if isinstance(piece, str) for part in (piece, NO_TOKEN)]
        read = iter(parted(await self._tokenize(texts, special=True)))
        found = [self._bos] if self._bos is not None else []
        for piece in pieces:
            if isinstance(piece, str):
                found += next(read)
            else:
                async with self._turn:
                    found += piece.placeholders(await self._count_image_tokens(piece))
        return found

    async def prompt(self, request: TextRequest) -> dict[str, object]:
        """Return the prompt of a request as the child takes it; may raise ``EngineRefused``."""
        pictured = request.pictured
        assert pictured is not None
        pieces = self._without_bos(pictured.pieces)
        texts = [self.marker if isinstance(piece, Image) else piece for piece in pieces]
        if generated := request.prompt[pictured.tokens :]:
            texts.append(await self._spell_or_refuse(pictured, generated))
        images = [piece.base64 for piece in pieces if isinstance(piece, Image)]
        return {"prompt_string": "".join(texts), "multimodal_data": images}

    def _without_bos(self, pieces: Sequence[str | Image]) -> Sequence[str | Image]:
        first = pieces[0]
        if self._bos is None or not isinstance(first, str):
            return pieces
        return [first.removeprefix(self.vocabulary.text(self._bos)), *pieces[1:]]

    async def _spell_or_refuse(self, pictured: PicturedPrompt, generated: Sequence[int]) -> str:
        known = len(self.vocabulary.tokens)  # a model may have more rows than words
        words = (self.vocabulary.tokens[id] for id in generated if id < known)
        text = b"".join(words).decode("utf-8", "replace")
        last = pictured.pieces[-1]
        before = last if isinstance(last, str) else ""
        alone, whole = parted(
            await self._tokenize([before, NO_TOKEN, before + text, NO_TOKEN], special=True)
        )
        meant = [id for id in (*alone, *generated) if id in self.control]
        if meant != [id for id in whole if id in self.control]:
            raise EngineRefused("the reply spells a control token, and its prompt has images")
        return text

    async def _count_image_tokens(self, image: Image) -> int:
        known = self._token_counts.get(image.digest)
        if known is None:
            if self._chat_overhead_tokens is None:
                one = await self._count_tokens_of_chat_with_images(_BLACK)
                two = await self._count_tokens_of_chat_with_images(_BLACK, _BLACK)
                self._chat_overhead_tokens = one - (two - one)
            known = await self._count_tokens_of_chat_with_images(image) - self._chat_overhead_tokens
            if len(self._token_counts) >= _MOST_COUNTS:
                self._token_counts.clear()
            self._token_counts[image.digest] = known
        return known

    async def _count_tokens_of_chat_with_images(self, *images: Image) -> int:
        parts = [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image.base64}"}}
            for image in images
        ]
        body = {"messages": [{"role": "user", "content": parts}]}
        try:
            answer = await self.ask("POST", "/v1/chat/completions/input_tokens", body)
        except EngineFailed as failure:
            if failure.__cause__ is not None:  # it gave no answer
                raise
            raise ImageRefused from failure
        return int(answer["input_tokens"])

    async def _tokenize(
        self, content: Sequence[str | int], *, special: bool, affixes: bool = False
    ) -> list[int]:
        body = {"content": content, "parse_special": special, "add_special": affixes}
        return list((await self.ask("POST", "/tokenize", body))["tokens"])
