"""The small real model as a folder for vLLM: ``vllm_model.py FILE.gguf FOLDER``.

Runs with vLLM's own Python, whose libraries read GGUF files and write such folders
(`accelerate` is needed alongside them).
"""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(weights: Path, folder: Path) -> None:
    """Write the folder, unless it is there."""
    if (folder / "model.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    place = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
    AutoTokenizer.from_pretrained(**place).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(**place, dtype="bfloat16")
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are not any more
    config.save_pretrained(folder)
    tied = "lm_head.weight" if config.tie_word_embeddings else None
    state = {name: part.contiguous() for name, part in model.state_dict().items() if name != tied}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
