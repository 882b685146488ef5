"""The small real model as a folder that was converted for OpenVINO."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from causerie.engines.weights.gguf import open_metadata, read_header
from causerie.engines.weights.vocabulary import TokenType, read_vocabulary

# In a process of its own: what OpenVINO allocates there is given back.
_CONVERT = """
import sys, openvino_genai
openvino_genai.LLMPipeline(sys.argv[1], "CPU", enable_save_ov_model=True)
"""


def write_openvino_folder(weights: Path, folder: Path) -> Path:
    """Write the model of a GGUF file as its converters and publishers do; return the folder."""
    folder.mkdir(parents=True)
    shutil.copy(weights, folder)
    file = folder / weights.name
    subprocess.run([sys.executable, "-c", _CONVERT, str(file)], check=True, capture_output=True)
    file.unlink()
    header, table = read_header(weights), read_vocabulary(weights)
    config = {
        "model_type": header.architecture,
        "max_position_embeddings": header.context_length,
        "num_hidden_layers": header.block_count,
        "num_key_value_heads": header.head_count_kv[0],
        "head_dim": header.key_length,
        "hidden_size": header.embedding_length,
        "vocab_size": header.vocabulary_size,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": table.end}))
    named = {"chat_template": header.chat_template}
    for name, id in (("bos_token", table.bos), ("eos_token", table.eos)):
        named[name] = table.tokens[id].decode() if id is not None else None
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(weights)))
    return folder


def _tokenizer(weights: Path) -> dict[str, object]:
    """Return a ``tokenizer.json`` of the model's tokens; its merges are in OpenVINO's own."""
    with open_metadata(weights) as data:
        names = [one.decode() for one in data.strings("tokenizer.ggml.tokens")]
        types = data.integers("tokenizer.ggml.token_type")
    added = [
        {"id": id, "content": name, "special": True}
        for id, (name, kind) in enumerate(zip(names, types, strict=True))
        if kind == TokenType.CONTROL
    ]
    plain = {name: id for id, name in enumerate(names)}
    return {
        "model": {"type": "BPE", "vocab": plain, "merges": []},
        "added_tokens": added,
        "decoder": {"type": "ByteLevel"},
    }
