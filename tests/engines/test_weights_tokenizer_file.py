"""The vocabulary of a tokenizer.json: bytes, kinds and ends; and files that lie."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from casekit import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizer_kinds import ADDED, BYTE_NAMES, KINDS, SPECIAL
from tokenizers import Tokenizer

from causerie.chat.compiler_worker import CompilerWorker
from causerie.engines.weights.errors import NotModelFolder
from causerie.engines.weights.vocabulary import TokenTable, TokenType, read_vocabulary

SMALL = {
    "added_tokens": [
        {"id": 3, "content": "<|im_end|>", "special": True},
        {"id": 4, "content": "<think>"},
        {"id": 7, "content": "<eos>", "special": True},
    ],
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
    "model": {"type": "BPE", "vocab": {"Ġhi": 0, "Ċ": 1, "é": 2}, "merges": []},
}


def written(path: Path, tokenizer: object = SMALL, **others: object) -> Path:
    for name, content in others.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    file = path / "tokenizer.json"
    file.write_text(json.dumps(tokenizer))
    return file


@cache
def made(kind: str) -> tuple[Tokenizer, TokenTable]:
    tokenizer = KINDS[kind]()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        tokenizer.save(str(file))
        return tokenizer, read_vocabulary(file)


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_is_the_same_token_as_in_the_library(kind: str) -> None:
    tokenizer, vocabulary = made(kind)
    assert len(vocabulary.tokens) == tokenizer.get_vocab_size()
    added = tokenizer.get_added_tokens_decoder()
    assert {token.content for token in ADDED} | set(SPECIAL) <= set(vocabulary.control)
    for id, (token, type) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        text = tokenizer.id_to_token(id)
        if id in added:
            assert token.decode() == text
            assert type == (TokenType.CONTROL if added[id].special else TokenType.USER_DEFINED)
        elif kind != "byte level" and text in BYTE_NAMES:
            assert token == bytes([BYTE_NAMES.index(text)])
        elif kind != "byte level":
            assert token.decode() == text.replace("▁", " ")


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text())
def test_the_bytes_of_a_text_are_the_text(kind: str, text: str) -> None:
    assume("<" not in text)  # added tokens take blanks, and names of bytes become bytes
    tokenizer, vocabulary = made(kind)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    joined = b"".join(vocabulary.tokens[id] for id in ids)
    if kind != "byte level":  # these begin a text with a blank, and write every blank as one sign
        text = text.replace("▁", " ")
        assert joined.removeprefix(b" ") == text.encode().removeprefix(b" ")
    else:
        assert joined == text.encode()


def test_gaps_and_padding_are_unused(tmp_path: Path) -> None:
    file = written(tmp_path, config={"text_config": {"vocab_size": 10}})
    vocabulary = read_vocabulary(file)
    assert vocabulary.tokens == (
        *(b" hi", b"\n", b"\xe9", b"<|im_end|>", b"<think>", b"", b"", b"<eos>", b"", b""),
    )
    assert [vocabulary.types[id] for id in (5, 6, 8, 9)] == [TokenType.UNUSED] * 4
    assert vocabulary.control == {"<|im_end|>": 3, "<think>": 4, "<eos>": 7}
    worker = CompilerWorker(read_vocabulary)
    worker.load(str(file))
    assert worker.check("start: / (hi| )+/", str(file)) == {}


@pytest.mark.parametrize(
    ("files", "bos", "eos", "end"),
    [
        ({}, None, None, (3,)),
        ({"tokenizer_config": {"eos_token": "<eos>", "bos_token": None}}, None, 7, (7, 3)),
        (
            {"tokenizer_config": {"eos_token": {"content": "<eos>"}, "bos_token": "Ċ"}},
            *(1, 7, (7, 3)),
        ),
        ({"config": {"eos_token_id": [7, 99], "bos_token_id": 0}}, 0, 7, (7, 3)),
        (
            {"tokenizer_config": {"bos_token": None}, "config": {"bos_token_id": 0}},
            *(None, None, (3,)),
        ),
        ({"config": {"text_config": {"eos_token_id": 7}}}, None, 7, (7, 3)),
        (
            {
                "config": {"eos_token_id": 2},
                "generation_config": {"eos_token_id": [1, 3]},
                "tokenizer_config": {"eos_token": "<eos>"},
            },
            *(None, 7, (7, 1, 3, 2)),
        ),
        ({"config": {"eos_token_id": "x"}, "tokenizer_config": {"eos_token": 1}}, None, None, (3,)),
    ],
)
def test_ends(
    tmp_path: Path,
    files: dict[str, object],
    bos: int | None,
    eos: int | None,
    end: tuple[int, ...],
) -> None:
    vocabulary = read_vocabulary(written(tmp_path, **files))
    assert (vocabulary.bos, vocabulary.eos, vocabulary.end) == (bos, eos, end)


def test_runs_of_blanks_that_were_added(tmp_path: Path) -> None:
    added = [{"id": 1, "content": "▁▁"}, {"id": 2, "content": "<a▁b>", "special": True}]
    model = {"type": "Unigram", "vocab": [["<unk>", 0]], "unk_id": 0}
    decoder = {"type": "Metaspace", "replacement": "▁"}
    file = written(tmp_path, {"added_tokens": added, "model": model, "decoder": decoder})
    vocabulary = read_vocabulary(file)
    assert vocabulary.tokens == (b"<unk>", b"  ", "<a▁b>".encode())
    assert vocabulary.types[0] == TokenType.UNKNOWN


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("kind WordPiece", {"model": {"type": "WordPiece", "vocab": {"a": 0}}}),
        ("marks parts of words", {"model": SMALL["model"] | {"end_of_word_suffix": "</w>"}}),
        ("neither byte-level nor", {"decoder": {"type": "BPEDecoder"}}),
        ("no tokens", {"added_tokens": [], "model": {"type": "BPE", "vocab": {}}}),
        ("ids beyond", {"added_tokens": [{"id": 10**9, "content": "x"}]}),
        ("ids beyond", {"added_tokens": [{"id": -1, "content": "x"}]}),
        ("no tokenizer", {"model": {"type": "BPE"}}),
        ("no tokenizer", {"model": 3}),
    ],
)
def test_what_is_not_read_is_said(tmp_path: Path, why: str, change: dict[str, object]) -> None:
    with pytest.raises(NotModelFolder, match=why):
        read_vocabulary(written(tmp_path, SMALL | change))


def test_nesting_costs_no_stack(tmp_path: Path) -> None:
    for depth in (300, 900, 100_000):
        nested = '{"type":"Sequence","decoders":[' * depth + "]}" * depth
        text = json.dumps(SMALL | {"decoder": 0}).replace('"decoder": 0', f'"decoder": {nested}')
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(NotModelFolder):
            read_vocabulary(tmp_path / "tokenizer.json")


@settings(max_examples=examples(200))
@given(data=st.data())
def test_damaged_files_raise_only_our_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(json.dumps(SMALL).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("damaged") / "tokenizer.json"
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(NotModelFolder):  # anything else escapes and fails
        read_vocabulary(file)


def test_reading_a_vocabulary_is_cheap_to_import() -> None:
    asked = (
        "import sys, causerie.engines.weights.vocabulary\n"
        "assert not {'tokenizers', 'torch', 'transformers', 'aiohttp'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", asked], check=True, timeout=60)
