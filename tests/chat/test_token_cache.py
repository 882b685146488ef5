"""Of a prompt only what was not read before is read, and its ids are those of its whole text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causerie.chat.encoding import ControlTokens, PromptEncoder, TokenCache, split
from causerie.chat.template import Rendered
from causerie.engines.base import PromptTooLong
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions

CONTROL = {"<s>": 1, "<|u|>": 2, "<|end|>": 3, "<|u": 4, "d|>": 5}


class Words:
    """A tokenizer of words with blanks in front, which pairs two that stand together.

    ``greedy`` it takes the blanks in front of a control token away.
    """

    def __init__(self, *, greedy: bool = False) -> None:
        self._greedy = greedy
        self.asked: list[str] = []
        self._ids: dict[str, int] = {}

    async def tokenize(self, pieces: Sequence[str | int], *, special: bool) -> list[int]:
        assert special
        self.asked += [piece for piece in pieces if isinstance(piece, str)]
        return [id for piece in pieces for id in self._read(str(piece))]

    def _read(self, text: str) -> list[int]:
        for token in sorted(CONTROL, key=len, reverse=True):
            before, found, behind = text.partition(token)
            if found:
                before = before.rstrip() if self._greedy else before
                return [*self._read(before), CONTROL[token], *self._read(behind)]
        return [
            self._ids.setdefault(word, 100 + len(self._ids))
            for word in re.findall(r"\s*\S+\s?\S*|\s+", text)
        ]


async def _ids(text: str, cache: TokenCache, engine: Words) -> list[int]:
    pieces = split(Rendered(text, ()), ControlTokens(CONTROL))
    return (await cache.read(text, pieces[0].heads, engine)).ids if pieces else []


_texts = st.lists(st.sampled_from([*CONTROL, "a", "b c", " ", "\n", "<", "|u|>"]), max_size=12).map(
    "".join
)


@given(texts=st.lists(_texts, max_size=6), greedy=st.booleans(), most=st.integers(1, 60))
async def test_the_ids_are_those_of_the_whole_text(
    texts: list[str], greedy: bool, most: int
) -> None:
    engine, cache = Words(greedy=greedy), TokenCache(most)
    for text in texts:
        want = await engine.tokenize([text], special=True) if text else []
        assert await _ids(text, cache, engine) == want


async def test_of_a_prompt_that_is_far_too_long_no_more_is_read_than_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("causerie.chat.encoding._MANY_TOKENS", 10)
    monkeypatch.setattr("causerie.chat.encoding._AT_ONCE", 40)
    engine, cache = Words(), TokenCache()
    text = "".join(f"<|u|>a{number} b<|end|>" for number in range(100))
    pieces = split(Rendered(text, ()), ControlTokens(CONTROL))
    with pytest.raises(PromptTooLong) as long:
        await cache.read(text, pieces[0].heads, engine, most=5)
    assert 10 < long.value.tokens < 40
    assert len(engine.asked) < 40
    assert len((await cache.read(text, pieces[0].heads, engine, most=1000)).ids) == 300
    with pytest.raises(PromptTooLong):  # though all of it is known
        await cache.read(text, pieces[0].heads, engine, most=5)


async def test_only_what_is_new_is_read() -> None:
    engine, cache = Words(), TokenCache()
    first = "<s><|u|>one two<|end|>"
    await _ids(first, cache, engine)
    engine.asked.clear()
    await _ids(first, cache, engine)
    assert engine.asked == []
    await _ids(first + "<|u|>three<|end|>", cache, engine)
    assert engine.asked == ["<|u|>three"]


async def test_what_was_read_long_ago_is_forgotten() -> None:
    engine, cache = Words(), TokenCache(most=20)
    for text in ("<s>eins", "<s>zwei", "<s>drei"):
        await _ids(text, cache, engine)
    engine.asked.clear()
    for text in ("<s>drei", "<s>eins"):
        await _ids(text, cache, engine)
    assert engine.asked == ["<s>eins"]


async def test_where_blanks_in_front_of_a_token_are_lost_nothing_is_cut() -> None:
    engine, cache = Words(greedy=True), TokenCache()
    assert await _ids("one \n<s>two", cache, engine) == [
        *await engine.tokenize(["one"], special=True),
        1,
        *await engine.tokenize(["two"], special=True),
    ]


@pytest.mark.engine
async def test_a_conversation_has_the_ids_that_the_engine_gives_it_as_a_whole(gguf: Path) -> None:
    engine = LlamaCppEngine("small", gguf, LlamaCppOptions(context=256, parallel=1))
    await engine.start()
    try:
        encoder = PromptEncoder((await engine.facts()).control_tokens)
        said = ("Hi.", " und \n", "\n\n\n", "naïve ☕️ 日本", "", "\u200b x", "1234 5678", "\t{}")
        text = "  <|im_start|>system\n \n<|im_end|>\n"
        for turn, words in enumerate(said * 2):
            text += f"<|im_start|>{'user' if turn % 2 else 'assistant'}\n{words}<|im_end|>\n"
            whole = await engine.tokenize([text], special=True)
            assert (await encoder.encode(Rendered(text, ()), engine)).ids == whole
    finally:
        await engine.stop()


async def test_a_reply_keeps_the_tokens_that_the_model_made() -> None:
    engine, encoder = Words(), PromptEncoder(CONTROL)
    asked = Rendered("<s><|u|>one two", ())
    prompt = await encoder.encode(asked, engine)
    assert prompt.end is not None
    encoder.keep_reply(prompt.end, " three<|end|>four", [900, 901, CONTROL["<|end|>"], 902])
    engine.asked.clear()
    following = await encoder.encode(Rendered(asked.text + " three<|end|>four<s>five", ()), engine)
    made = [*prompt.ids, 900, 901, CONTROL["<|end|>"], 902, CONTROL["<s>"]]
    assert following.ids[: len(made)] == made
    assert not any("three" in text or "four" in text for text in engine.asked)


async def test_the_same_words_elsewhere_have_the_tokens_of_the_tokenizer() -> None:
    engine, encoder = Words(), PromptEncoder(CONTROL)
    prompt = await encoder.encode(Rendered("<s>hello<|u|>one", ()), engine)
    assert prompt.end is not None
    encoder.keep_reply(prompt.end, " two", [900])
    for text in ("<s>other<|u|>one two<s>", "<s>hello<|u|>one two three<s>", "<|u|>one two<s>"):
        want = await engine.tokenize([text], special=True)
        assert (await encoder.encode(Rendered(text, ()), engine)).ids == want


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (" two<|end|>", [900, 901]),  # a control token that the model spelled in plain ones
        (" two", [900, CONTROL["<|end|>"]]),  # one without a text
        (" two<|end|><s>", [900, CONTROL["<s>"], CONTROL["<|end|>"]]),
    ],
)
async def test_a_reply_whose_tokens_are_not_its_text_is_not_kept(text: str, ids: list[int]) -> None:
    engine, encoder = Words(), PromptEncoder(CONTROL)
    prompt = await encoder.encode(Rendered("<s>one", ()), engine)
    assert prompt.end is not None
    encoder.keep_reply(prompt.end, text, ids)
    whole = f"<s>one{text}<|u|>three"
    want = await engine.tokenize([whole], special=True)
    assert (await encoder.encode(Rendered(whole, ()), engine)).ids == want


async def test_replies_of_long_ago_are_forgotten() -> None:
    engine, cache = Words(), TokenCache(most=20)
    ends = []
    for name in ("eins", "zwei", "drei"):
        text = f"<s>{name}"
        heads = split(Rendered(text, ()), ControlTokens(CONTROL))[0].heads
        end = (await cache.read(text, heads, engine)).end
        assert end is not None
        cache.keep_reply(end, text + " vier", heads, [900])
        ends.append(text + " vier")
    assert (await _ids(ends[2], cache, engine))[-1] == 900
    assert (await _ids(ends[0], cache, engine))[-1] != 900
