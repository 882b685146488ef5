"""Reading model files: facts, vocabulary, memory; and files that lie."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from casekit import examples
from hub import gguf, item, split, text
from hypothesis import given, settings
from hypothesis import strategies as st

from causerie.engines.machine import kv_bytes_per_token, model_memory_bytes
from causerie.engines.weights.errors import NotGguf
from causerie.engines.weights.gguf import gguf_parts, read_header
from causerie.engines.weights.vocabulary import TokenType, read_gguf_vocabulary


def written(folder: Path, content: bytes, name: str = "m.gguf") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": ["<|im_end|>", "Ġhi", "Ċ", "Ã©", "日", "<|end|>", "<|endoftext|>"],
    "tokenizer.ggml.token_type": [3, 1, 1, 1, 4, 3, 3],
    "tokenizer.ggml.bos_token_id": 6,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.chat_template.tool_use": "{{ tools }}",
}


@pytest.mark.parametrize("version", [2, 3])
def test_header(tmp_path: Path, version: int) -> None:
    content = gguf(VOCABULARY, version=version)
    header = read_header(written(tmp_path, content))
    assert header.architecture == "llama"
    assert (header.context_length, header.block_count) == (2048, 4)
    assert header.head_count_kv == (2, 2, 2, 2)
    assert (header.key_length, header.value_length) == (8, 8)
    assert header.chat_template == "{{ messages }}"
    assert (header.vocabulary_size, header.file_size) == (7, len(content))


def test_heads_of_every_layer(tmp_path: Path) -> None:
    extra = {"llama.attention.head_count_kv": [2, 0, 2, 0], "llama.attention.key_length": 16}
    header = read_header(written(tmp_path, gguf(extra)))
    assert header.head_count_kv == (2, 0, 2, 0)
    assert kv_bytes_per_token(header) == 4 * (16 + 8) * 2


def test_full_attention_in_some_layers_only(tmp_path: Path) -> None:
    header = read_header(written(tmp_path, gguf({"llama.full_attention_interval": 4})))
    assert header.head_count_kv == (0, 0, 0, 2)


def test_latent_attention_keeps_one_vector_a_layer(tmp_path: Path) -> None:
    extra = {"llama.attention.kv_lora_rank": 512, "llama.rope.dimension_count": 64}
    header = read_header(written(tmp_path, gguf(extra)))
    assert kv_bytes_per_token(header) == 4 * 576 * 2


def test_memory_is_weights_and_cache_and_buffers(tmp_path: Path) -> None:
    header = read_header(written(tmp_path, gguf()))
    per_token = kv_bytes_per_token(header)
    assert per_token == 4 * 2 * 16 * 2
    assert kv_bytes_per_token(header, "q8_0") == per_token * 17 // 32
    grown = model_memory_bytes(header, 3000) - model_memory_bytes(header, 1000)
    assert grown == 2000 * per_token
    assert model_memory_bytes(header, 0) > header.file_size
    with pytest.raises(ValueError, match="q8_0"):
        kv_bytes_per_token(header, "q9")


def test_byte_level_vocabulary(tmp_path: Path) -> None:
    vocabulary = read_gguf_vocabulary(written(tmp_path, gguf(VOCABULARY)))
    assert vocabulary.tokens == (
        *(b"<|im_end|>", b" hi", b"\n", "é".encode(), "日".encode()),
        *(b"<|end|>", b"<|endoftext|>"),
    )
    assert vocabulary.end == (0, 5, 6)
    assert vocabulary.control == {"<|im_end|>": 0, "日": 4, "<|end|>": 5, "<|endoftext|>": 6}


def test_pieces_and_named_bytes(tmp_path: Path) -> None:
    extra = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "▁hi", "<0x0A>", "é"],
        "tokenizer.ggml.token_type": [2, 3, 3, 6, 1, 1, 1],
        "tokenizer.ggml.eos_token_id": 2,
    }
    vocabulary = read_gguf_vocabulary(written(tmp_path, gguf(extra)))
    assert vocabulary.tokens[3:] == (b"\n", b" hi", b"<0x0A>", "é".encode())
    assert vocabulary.types[3] == TokenType.BYTE
    assert vocabulary.end == (2,)


def test_end_of_a_message_is_no_end_where_calls_have_their_own(tmp_path: Path) -> None:
    extra = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["<|return|>", "<|end|>", "<|call|>"],
        "tokenizer.ggml.token_type": [3, 3, 3],
        "tokenizer.ggml.eos_token_id": 0,
    }
    assert read_gguf_vocabulary(written(tmp_path, gguf(extra))).end == (0, 2)


def test_no_vocabulary_or_one_that_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(NotGguf, match="no vocabulary"):
        read_gguf_vocabulary(written(tmp_path, gguf()))
    extra = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1]}
    with pytest.raises(NotGguf, match="2 tokens but 1 token types"):
        read_gguf_vocabulary(written(tmp_path, gguf(extra)))


def test_parts_of_a_split_model_count_together(tmp_path: Path) -> None:
    files = split("big", [gguf(padding=10), b"x" * 90])
    for name, content in files.items():
        written(tmp_path, content, name)
    first = tmp_path / "big-00001-of-00002.gguf"
    assert gguf_parts(tmp_path / "big-00002-of-00002.gguf") == tuple(
        tmp_path / name for name in files
    )
    assert read_header(first).file_size == sum(map(len, files.values()))


def head(*facts: bytes, count: int | None = None, version: int = 3, tensors: int = 0) -> bytes:
    number = len(facts) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", version, tensors, number) + b"".join(facts)


def tensor(name: str, offset: int) -> bytes:
    return text(name) + struct.pack("<IQIQ", 1, 8, 0, offset)


HUGE = 1 << 62
LLAMA = item("general.architecture", "llama")
TWO = head(LLAMA, tensors=2) + tensor("b", 32) + tensor("a", 0)
WHOLE = TWO + b"\0" * (-len(TWO) % 32) + b"\0" * 64
HOSTILE = {
    "empty": (b"", "empty"),
    "short": (b"GG", "letters GGUF"),
    "html": (b"<html>not found</html>", "letters GGUF"),
    "version 1": (head(version=1), "version"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
    "cut in the head": (b"GGUF\3\0\0\0\0", "ends inside"),
    "many keys": (head(count=HUGE), "metadata keys"),
    "keys missing": (head(count=3), "ends inside"),
    "long key": (head(struct.pack("<Q", HUGE), count=1), "ends inside"),
    "long value": (head(text("a") + struct.pack("<IQ", 8, HUGE)), "ends inside"),
    "long array": (head(text("a") + struct.pack("<IIQ", 9, 4, HUGE)), "more than the file"),
    "many strings": (head(text("a") + struct.pack("<IIQ", 9, 8, HUGE)), "more than the file"),
    "strings cut": (
        head(text("a") + struct.pack("<IIQQ", 9, 8, 1, HUGE)),
        "ends inside",
    ),
    "arrays in arrays": (head(text("a") + struct.pack("<IIQ", 9, 9, 1)), "unsupported type 9"),
    "unknown type": (head(text("a") + struct.pack("<I", 99)), "unknown type 99"),
    "no architecture": (head(item("a", 1)), "architecture"),
    "many tensors": (head(LLAMA, tensors=HUGE), "claims .* tensors"),
    "tensors missing": (head(LLAMA, tensors=3), "ends inside"),
    "cut before a tensor": (WHOLE[:-32], "begins at byte .*; fetch or copy it again"),
}


def test_a_file_with_all_of_its_tensors(tmp_path: Path) -> None:
    assert read_header(written(tmp_path, WHOLE)).file_size == len(WHOLE)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    content, why = HOSTILE[name]
    path = written(tmp_path, content)
    tracemalloc.start()
    try:
        with pytest.raises(NotGguf, match=why) as caught:
            read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    assert peak < 2 << 20


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotGguf, match="No such file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(NotGguf):
        read_header(tmp_path)


def test_huge_layer_count_builds_nothing_huge(tmp_path: Path) -> None:
    header = read_header(written(tmp_path, gguf({"llama.block_count": (1 << 32) - 1})))
    assert len(header.head_count_kv) <= 4096


@settings(deadline=None, max_examples=examples(150))
@given(data=st.data())
def test_any_damage_is_named_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(gguf(VOCABULARY))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    path = written(tmp_path_factory.mktemp("damaged"), bytes(content[:cut]))
    for read in (read_header, read_gguf_vocabulary):
        with suppress(NotGguf):  # anything else escapes and fails
            read(path)


def test_reading_a_file_loads_no_http_client() -> None:
    asked = (
        "import sys, causerie.engines.weights.gguf\n"
        "heavy = {'aiohttp', 'huggingface_hub'}\n"
        "assert not heavy & set(sys.modules)\n"
        "import causerie.engines.weights.fetching\n"
        "assert heavy & set(sys.modules) == {'aiohttp'}  # the hub's only for a model of the hub\n"
    )
    subprocess.run([sys.executable, "-c", asked], check=True, timeout=60)
