"""Small models with random weights and the vocabulary of a real one, for what no real one tests.

They say nothing sensible, and say it in a hundredth of the time. The states of two are of the kinds
that cannot be cut back: a sliding window in most layers, or a convolution whose layers keep only
the last tokens.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hub import item, text

from causerie.engines.weights.gguf import open_metadata

WIDTH, HIDDEN, HEADS, BLOCKS = 64, 128, 2, 4
WINDOW = 32  # tokens
_F32, _Q8_0 = 0, 8
_IN_BLOCK = 32
_ALIGNMENT = 32
_IDS = ("bos", "eos", "unknown", "padding")


@dataclass(frozen=True, slots=True)
class Tensor:
    """``shape`` begins with the dimension that varies fastest."""

    kind: int
    shape: tuple[int, ...]
    content: bytes


def write_plain(path: Path, like: Path, trained: int = 4096) -> None:
    """Write a model of which every layer sees all tokens; ``trained`` is its longest text."""
    _random.seed(_SEED)
    facts: dict[str, object] = {
        "context_length": trained,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.head_count_kv": HEADS,
    }
    norm = {"ffn_norm.weight": _ones(WIDTH)}
    tensors = {"output_norm.weight": _ones(WIDTH)}
    for block in range(BLOCKS):
        tensors |= _named(block, _attention() | norm | _feed_forward())
    _write(path, like, "llama", facts, tensors)


def write_sliding(path: Path, like: Path) -> None:
    """Write a model of which three in four layers see only the last tokens."""
    _random.seed(_SEED)
    facts: dict[str, object] = {
        "attention.sliding_window": WINDOW,
        "attention.layer_norm_epsilon": 1e-5,
        "logit_scale": 1.0,
        "attention.head_count_kv": HEADS,
    }
    tensors = {"output_norm.weight": _ones(WIDTH)}
    for block in range(BLOCKS):
        tensors |= _named(block, _attention() | _feed_forward())
    _write(path, like, "cohere2", facts, tensors)


def write_hybrid(path: Path, like: Path) -> None:
    """Write a model of which every other layer is a short convolution."""
    _random.seed(_SEED)
    facts: dict[str, object] = {
        "attention.layer_norm_rms_epsilon": 1e-5,
        "shortconv.l_cache": 3,
        "attention.head_count_kv": [0, HEADS] * (BLOCKS // 2),
    }
    tensors = {"token_embd_norm.weight": _ones(WIDTH)}
    norms = {f"attn_{one}_norm.weight": _ones(WIDTH // HEADS) for one in "qk"}
    for block in range(BLOCKS):
        mixing = _attention() | norms if block % 2 else _convolution()
        norm = {"ffn_norm.weight": _ones(WIDTH)}
        tensors |= _named(block, mixing | norm | _feed_forward())
    _write(path, like, "lfm2", facts, tensors)


def write_encoder(path: Path, like: Path) -> None:
    """Write an embedding model: every token sees all others, and vectors are the mean."""
    _random.seed(_SEED)
    facts: dict[str, object] = {
        "attention.layer_norm_epsilon": 1e-5,
        "attention.causal": False,
        "pooling_type": 1,
    }
    tensors = _norm("token_embd_norm") | {
        "position_embd.weight": _noise(WIDTH, 4096),
        "token_types.weight": _ones(WIDTH),
    }
    for block in range(BLOCKS):
        parts = _attention() | _norm("attn_output_norm") | _norm("layer_output_norm")
        parts |= {name: each for name, each in _feed_forward().items() if "gate" not in name}
        parts |= {name.replace("weight", "bias"): _zeros(each) for name, each in parts.items()}
        tensors |= {f"blk.{block}.{name}": tensor for name, tensor in parts.items()}
    _write(path, like, "bert", facts, tensors, {"tokenizer.ggml.token_type_count": 1})


def _norm(name: str) -> dict[str, Tensor]:
    return {f"{name}.weight": _ones(WIDTH), f"{name}.bias": _zeros(_ones(WIDTH))}


def _zeros(of: Tensor) -> Tensor:
    return Tensor(_F32, of.shape[-1:], bytes(4 * of.shape[-1]))


def _named(block: int, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    named = {f"blk.{block}.{name}": tensor for name, tensor in parts.items()}
    return named | {f"blk.{block}.attn_norm.weight": _ones(WIDTH)}


def _attention() -> dict[str, Tensor]:
    return {f"attn_{one}.weight": _noise(WIDTH, WIDTH) for one in ("q", "k", "v", "output")}


def _feed_forward() -> dict[str, Tensor]:
    wide = {f"ffn_{one}.weight": _noise(WIDTH, HIDDEN) for one in ("gate", "up")}
    return wide | {"ffn_down.weight": _noise(HIDDEN, WIDTH)}


def _convolution() -> dict[str, Tensor]:
    drawn = [_random.gauss(0, 0.3) for _ in range(3 * WIDTH)]
    kernel = Tensor(_F32, (3, WIDTH), struct.pack(f"<{len(drawn)}f", *drawn))
    return {
        "shortconv.conv.weight": kernel,
        "shortconv.in_proj.weight": _noise(WIDTH, 3 * WIDTH),
        "shortconv.out_proj.weight": _noise(WIDTH, WIDTH),
    }


_SEED = 7  # of each file anew: its weights are the same whatever was written before
_random = random.Random()


def _noise(columns: int, rows: int) -> Tensor:
    """Return a quantized matrix: blocks of a scale and 32 signed bytes."""
    scale, drawn = struct.pack("<e", 0.004), _random.randbytes(columns * rows)
    blocks = (scale + drawn[at : at + _IN_BLOCK] for at in range(0, len(drawn), _IN_BLOCK))
    return Tensor(_Q8_0, (columns, rows), b"".join(blocks))


def _ones(size: int) -> Tensor:
    return Tensor(_F32, (size,), struct.pack(f"<{size}f", *[1.0] * size))


def _write(
    path: Path,
    like: Path,
    architecture: str,
    own: Mapping[str, object],
    tensors: Mapping[str, Tensor],
    more: Mapping[str, object] | None = None,
) -> None:
    vocabulary, size = _vocabulary(like)
    sizes = {
        "context_length": 4096,
        "embedding_length": WIDTH,
        "block_count": BLOCKS,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "rope.dimension_count": WIDTH // HEADS,
        "vocab_size": size,
    }
    facts = {
        "general.architecture": architecture,
        "general.name": "Tiny",
        **vocabulary,
        **(more or {}),
    }
    facts |= {f"{architecture}.{key}": value for key, value in {**sizes, **own}.items()}
    infos, data = b"", b""
    for name, tensor in {"token_embd.weight": _noise(WIDTH, size), **tensors}.items():
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        infos += text(name) + shape + struct.pack("<IQ", tensor.kind, len(data))
        data += tensor.content + bytes(-len(tensor.content) % _ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors) + 1, len(facts))
    head += b"".join(item(key, value) for key, value in facts.items()) + infos
    path.write_bytes(head + bytes(-len(head) % _ALIGNMENT) + data)


def _vocabulary(like: Path) -> tuple[dict[str, object], int]:
    """Return the tokenizer and chat template of a file, and the number of its tokens."""
    with open_metadata(like) as given:
        tokens = given.strings("tokenizer.ggml.tokens")
        found: dict[str, object] = {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": list(given.integers("tokenizer.ggml.token_type")),
            "tokenizer.ggml.merges": given.strings("tokenizer.ggml.merges"),
        }
        for key in ("ggml.model", "ggml.pre", "chat_template"):
            found[f"tokenizer.{key}"] = given.text(f"tokenizer.{key}")
        for key in (f"tokenizer.ggml.{name}_token_id" for name in _IDS):
            if (id := given.integer(key)) is not None:
                found[key] = id
    return found, len(tokens)
