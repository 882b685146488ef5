"""Writes a model that sees, of random weights: a text model and its projector, as GGUF files.

The text model is a Llama of two layers with the vocabulary and the template of the model that
tests use; the projector is that of SmolVLM (Idefics 3): a SigLIP of two layers, whose patches are
taken together by fours. It cuts an image that is larger than 64 pixels into tiles, as the large
ones do. Nothing was trained, so what the model says means nothing, and is the same each time.

    python tests/vision_model.py FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter

WIDTH = 64  # of the text model
_LAYERS, _HEADS, _FORWARD = 2, 4, 128
_EYE, _EYE_LAYERS, _EYE_HEADS, _EYE_FORWARD = 32, 2, 2, 64
_PIXELS, _PATCH, _TOGETHER, _LONGEST = 64, 8, 2, 128
_CONTROL = 3
# Words of the vocabulary that the engine puts around an image and its tiles.
AROUND = ("<fake_token_around_image>", "<global-img>", "<image>", "<row_1_col_1>", "<row_1_col_2>")


class _Weights:
    """Tensors of a file, drawn from one seed."""

    def __init__(self, writer: GGUFWriter, seed: int) -> None:
        self._writer = writer
        self._draw = np.random.default_rng(seed)

    def matrix(self, name: str, *shape: int, scale: float = 0.0) -> None:
        drawn = self._draw.standard_normal(shape) * (scale or shape[-1] ** -0.5)
        self._writer.add_tensor(name, drawn.astype(np.float32))

    def vector(self, name: str, size: int, value: float) -> None:
        self._writer.add_tensor(name, np.full(size, value, np.float32))

    def linear(self, name: str, out: int, into: int) -> None:
        self.matrix(f"{name}.weight", out, into)
        self.vector(f"{name}.bias", out, 0.0)

    def norm(self, name: str, size: int) -> None:
        self.vector(f"{name}.weight", size, 1.0)
        self.vector(f"{name}.bias", size, 0.0)


def write_text_model(vocabulary: Path, target: Path, template: str | None = None) -> None:
    """Write the text model with the vocabulary of another file, and the words around images."""
    fields = GGUFReader(vocabulary).fields

    def value(key: str) -> Any:
        return fields[f"tokenizer.{key}"].contents()

    tokens = [*value("ggml.tokens"), *AROUND]
    writer = GGUFWriter(target, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(_LAYERS)
    writer.add_feed_forward_length(_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // _HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(value("ggml.model"))
    writer.add_tokenizer_pre(value("ggml.pre"))
    writer.add_token_list(tokens)
    writer.add_token_types([*value("ggml.token_type"), *[_CONTROL] * len(AROUND)])
    writer.add_token_merges(value("ggml.merges"))
    writer.add_bos_token_id(value("ggml.bos_token_id"))
    writer.add_eos_token_id(value("ggml.eos_token_id"))
    writer.add_chat_template(template or value("chat_template"))
    weights = _Weights(writer, seed=1)
    weights.matrix("token_embd.weight", len(tokens), WIDTH, scale=1.0)
    weights.matrix("output.weight", len(tokens), WIDTH)
    weights.vector("output_norm.weight", WIDTH, 1.0)
    for at in range(_LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            weights.vector(f"blk.{at}.{name}.weight", WIDTH, 1.0)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights.matrix(f"blk.{at}.{name}.weight", WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            weights.matrix(f"blk.{at}.{name}.weight", _FORWARD, WIDTH)
        weights.matrix(f"blk.{at}.ffn_down.weight", WIDTH, _FORWARD)
    _finish(writer)


def write_projector(target: Path, width: int = WIDTH) -> None:
    """Write the projector for text models of a width."""
    writer = GGUFWriter(target, "clip")
    writer.add_string("general.type", "mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "idefics3")
    writer.add_bool("clip.use_gelu", True)
    numbers = {
        **{"image_size": _PIXELS, "patch_size": _PATCH, "preproc_image_size": _LONGEST},
        **{"embedding_length": _EYE, "feed_forward_length": _EYE_FORWARD},
        **{"block_count": _EYE_LAYERS, "attention.head_count": _EYE_HEADS},
        **{"projection_dim": width, "projector.scale_factor": _TOGETHER},
    }
    for key, number in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    for key in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])
    weights = _Weights(writer, seed=2)
    weights.matrix("v.patch_embd.weight", _EYE, 3, _PATCH, _PATCH, scale=0.1)
    weights.vector("v.patch_embd.bias", _EYE, 0.0)
    weights.matrix("v.position_embd.weight", (_PIXELS // _PATCH) ** 2, _EYE, scale=1.0)
    for at in range(_EYE_LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            weights.linear(f"v.blk.{at}.{name}", _EYE, _EYE)
        weights.linear(f"v.blk.{at}.ffn_up", _EYE_FORWARD, _EYE)
        weights.linear(f"v.blk.{at}.ffn_down", _EYE, _EYE_FORWARD)
        weights.norm(f"v.blk.{at}.ln1", _EYE)
        weights.norm(f"v.blk.{at}.ln2", _EYE)
    weights.norm("v.post_ln", _EYE)
    weights.matrix("mm.model.fc.weight", width, _EYE * _TOGETHER**2)
    _finish(writer)


def write_model(folder: Path, vocabulary: Path) -> Path:
    """Write both files into a folder, and return the text model's."""
    weights = folder / "sees-F32.gguf"
    write_text_model(vocabulary, weights)
    write_projector(folder / "mmproj-sees-F32.gguf")
    return weights


def _finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    print(write_model(Path(sys.argv[1]), Path(os.environ["CAUSERIE_TEST_GGUF"])))  # noqa: T201
