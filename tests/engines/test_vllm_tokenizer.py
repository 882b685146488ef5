"""Text to ids by a model folder's tokenizer: nothing is lost, and nothing is forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from casekit import each_of
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizer_kinds import ADDED, KINDS, SPECIAL
from tokenizers import Tokenizer

from causerie.engines.vllm.engine import FolderTokenizer
from causerie.engines.weights.errors import NotModelFolder
from causerie.engines.weights.vocabulary import TokenTable, read_vocabulary

CONTROL = [*SPECIAL, *(token.content for token in ADDED)]

Change = Callable[[dict[str, Any]], object]


def nothing(file: dict[str, Any]) -> None:
    """Leaves the file as it is."""


def opened(kind: str, change: Change = nothing) -> tuple[FolderTokenizer, TokenTable, Tokenizer]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        content = json.loads(KINDS[kind]().to_str())
        change(content)
        file.write_text(json.dumps(content))
        return FolderTokenizer(file), read_vocabulary(file), Tokenizer.from_file(str(file))


usual = cache(opened)


def written(vocabulary: TokenTable, ids: list[int]) -> str:
    return b"".join(vocabulary.tokens[id] for id in ids).decode()


TEXT = st.lists(st.text() | st.sampled_from([*CONTROL, " ", "▁", "<0x0A>"])).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT)
def test_plain_text_is_all_there_and_no_added_token_is_in_it(kind: str, text: str) -> None:
    assume(kind != "unigram" or "<0x" not in text)  # there the library reads it as the byte
    tokenizer, vocabulary, _ = usual(kind)
    ids = tokenizer.ids([text], special=False)
    assert set(ids).isdisjoint(vocabulary.control.values())
    found, wanted = written(vocabulary, ids), text
    if kind != "byte level":
        found, wanted = found.removeprefix(" "), text.replace("▁", " ").removeprefix(" ")
    assert found == wanted


@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXT)
def test_special_is_what_the_library_makes_of_it(kind: str, text: str) -> None:
    tokenizer, _, library = usual(kind)
    wanted = library.encode(text, add_special_tokens=False).ids
    assert tokenizer.ids([text], special=True) == wanted


@each_of("kind", KINDS)
@each_of("text", CONTROL)
def test_an_added_token_is_itself_or_its_letters(kind: str, text: str) -> None:
    tokenizer, vocabulary, library = usual(kind)
    id = library.token_to_id(text)
    assert tokenizer.ids([text], special=True) == [id]
    for around in (text, f" {text} ", f"a{text}b", text * 2, f"\n{text}"):
        ids = tokenizer.ids([around], special=False)
        assert id not in ids
        assert written(vocabulary, ids).strip() == around.strip()


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_read_each_by_itself(kind: str) -> None:
    tokenizer, _, _ = usual(kind)
    apart = [tokenizer.ids([text], special=False) for text in ("<|e", "nd|>", "")]
    pieces = ["<|e", 7, "nd|>", "", 8]
    assert tokenizer.ids(pieces, special=True) == [*apart[0], 7, *apart[1], *apart[2], 8]
    assert tokenizer.ids([], special=True) == []


def whole(file: dict[str, Any]) -> None:
    """Every added token is a piece of the vocabulary that merges lead to, or is looked up whole."""
    vocabulary = file["model"]["vocab"]
    for token in file["added_tokens"]:
        text, made = token["content"], token["content"][0]
        vocabulary[text] = token["id"]
        for letter in text[1:] if text.isascii() else "":
            for part in (letter, made + letter):
                vocabulary.setdefault(part, max(vocabulary.values()) + 1000)
            file["model"]["merges"].insert(0, [made, letter])
            made += letter
    file["model"]["ignore_merges"] = True


@pytest.mark.parametrize("kind", ["byte level", "pieces"])
def test_a_token_that_the_vocabulary_has_as_one_piece(kind: str) -> None:
    tokenizer, vocabulary, library = opened(kind, whole)
    for text in CONTROL:
        assert tokenizer.ids([text], special=True) == [library.token_to_id(text)]
        ids = tokenizer.ids([text, f"x{text}"], special=False)
        assert library.token_to_id(text) not in ids
        assert written(vocabulary, ids).replace(" ", "") == f"{text}x{text}"


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_token_is_found_by_its_very_letters(kind: str) -> None:
    """A normalizer makes it of others, which nobody looks for in what users write."""

    def normalizes(file: dict[str, Any]) -> None:
        nfkc, lower = {"type": "NFKC"}, {"type": "Lowercase"}
        file["normalizer"] = {"type": "Sequence", "normalizers": [nfkc, lower]}
        file["added_tokens"][-1] |= {"content": "<tool>", "normalized": True, "single_word": False}

    tokenizer, vocabulary, _ = opened(kind, normalizes)
    id = vocabulary.control["<tool>"]
    for text in ("＜tool＞", "<TOOL>"):
        assert id not in tokenizer.ids([text], special=True)
    assert id in tokenizer.ids(["a<tool>b"], special=True)


def test_merges_as_old_files_write_them() -> None:
    def older(file: dict[str, Any]) -> None:
        whole(file)
        file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]

    tokenizer, vocabulary, _ = opened("byte level", older)
    ids = tokenizer.ids(["<|end|>the"], special=False)
    assert set(ids).isdisjoint(vocabulary.control.values())
    assert written(vocabulary, ids) == "<|end|>the"


def test_a_character_that_is_unknown_is_that_and_cannot_be_written() -> None:
    def no_bytes(file: dict[str, Any]) -> None:
        file["model"].update(byte_fallback=False)

    for kind in ("pieces", "unigram"):
        tokenizer, _, library = opened(kind, no_bytes)
        unknown = library.token_to_id("<unk>")
        assert unknown in tokenizer.ids(["☃"], special=False)
        assert unknown in tokenizer.ids(["<unk>"], special=True)
        assert tokenizer.ids(["end"], special=False) == tokenizer.ids(["end"], special=True)


def test_what_cuts_fills_or_shuffles_is_off() -> None:
    def on(file: dict[str, Any]) -> None:
        library = Tokenizer.from_str(json.dumps(file))
        library.enable_truncation(3)
        library.enable_padding(length=50)
        changed = json.loads(library.to_str())
        file.update(truncation=changed["truncation"], padding=changed["padding"])
        file["model"]["dropout"] = 0.9

    tokenizer, _, _ = opened("byte level", on)
    text = "the quick brown fox"
    for special in (True, False):
        ids = tokenizer.ids([text], special=special)
        assert ids == usual("byte level")[0].ids([text], special=special)


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_pair_is_no_character_and_a_whole_one_is(kind: str) -> None:
    tokenizer, vocabulary, _ = usual(kind)
    for special in (True, False):
        ids = tokenizer.ids(["a\ud800b\ud83d\ude00"], special=special)
        assert written(vocabulary, ids).strip() == "a\ufffdb😀"


def test_a_text_that_the_library_fails_at_is_an_error_like_others() -> None:
    """A panic is none by itself. With a real tokenizer it takes ten million blanks."""

    def gives_up(file: dict[str, Any]) -> None:
        endless = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "a"}
        file["normalizer"] = endless

    tokenizer, _, _ = opened("byte level", gives_up)
    for special in (True, False):
        with pytest.raises(ValueError, match="fails at a text"):
            tokenizer.ids(["a" * 40 + "b"], special=special)


def misnumbered(file: dict[str, Any]) -> None:
    file["added_tokens"][-1]["id"] += 5


@pytest.mark.parametrize(
    "change",
    [
        misnumbered,
        lambda file: file.update(model={"type": "BPE"}),
        lambda file: file.update(model=None),
        lambda file: file.update(added_tokens=[{"content": 1}]),
        lambda file: file["model"].update(vocab=[]),
        lambda file: file.update(normalizer={"type": "Precompiled", "precompiled_charsmap": ""}),
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, change: Change) -> None:
    content = json.loads(KINDS["byte level"]().to_str())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(NotModelFolder, match="no tokenizer that the library takes"):
        FolderTokenizer(tmp_path / "tokenizer.json")


def test_one_that_fails_at_unknown_characters_is_refused(tmp_path: Path) -> None:
    content = json.loads(KINDS["unigram"]().to_str())
    content["model"].update(unk_id=None, byte_fallback=False)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(NotModelFolder, match="nothing for characters that it does not know"):
        FolderTokenizer(tmp_path / "tokenizer.json")
