"""A model as a folder, the way that Hugging Face repositories hold it.

    config.json              what the model is
    generation_config.json   what ends its texts, recommended sampling (may be absent)
    tokenizer_config.json    special tokens, perhaps the template (may be absent)
    tokenizer.json           the tokenizer
    chat_template.jinja      the template (may be absent)
    *.safetensors            the weights; else *.bin

A folder for OpenVINO has its weights in the format of that, and its tokenizer once more:

    openvino_model.xml       with openvino_model.bin
    openvino_tokenizer.xml   with openvino_tokenizer.bin

Reads what its JSON says, believing none of it; knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.weights.errors import NotModelFolder

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"  # which file of a split model holds which tensor
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
OPENVINO_MODEL = "openvino_model.xml"
OPENVINO = (
    OPENVINO_MODEL,
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
)
"""What a folder for OpenVINO holds in the place of other weights."""

_TEMPLATE = "chat_template.jinja"
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin")  # what training leaves behind
_OF_STATES = (
    "attn_layer_", "conv_", "full_attn_", "layers_block_type", "linear_", "mamba", "ssm_", "state_"
)  # fmt: skip
_MOST_NUMBER = 1 << 24  # of a configuration: bounds what a hostile one makes us reckon
_TELLING = (".json", ".jinja", ".model")  # endings of what makes a model, alongside its weights
_MOST_BYTES = 256 << 20  # of one file that is read; the largest tokenizers have 40 MB


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Facts of a model folder, or of one without its weights."""

    path: Path
    architecture: str
    context_length: int  # in tokens; 0 if unknown
    chat_template: str  # empty if there is none
    file_size: int  # of the weights, in bytes
    config: Mapping[str, object]  # the object in its config.json
    generation: Mapping[str, object]  # of its generation_config.json; empty if there is none
    files: tuple[Path, ...]  # that make it this model: weights, configuration, tokenizer, template

    @property
    def kept_elements(self) -> int:
        """Return how many elements a cache keeps of a token, at most; 0 if that is unknown."""
        heads, width = self._clamped_number_or_zero("num_attention_heads"), self.embedding_length
        each = self._clamped_number_or_zero("head_dim") or (width // heads if heads else 0)
        kept = self._clamped_number_or_zero("num_key_value_heads") or heads
        return 2 * self._clamped_number_or_zero("num_hidden_layers") * kept * each

    @property
    def is_recurrent(self) -> bool:
        """Return whether some layers keep a recurrent state, as their kinds or other keys tell."""
        kinds = in_config(self.config, "layer_types")
        if isinstance(kinds, list):
            return any("attention" not in str(kind) or "linear" in str(kind) for kind in kinds)
        nested = in_config(self.config, "text_config")
        keys = [*self.config, *(nested if isinstance(nested, dict) else ())]
        return any(key.startswith(_OF_STATES) for key in keys)

    @property
    def vocabulary_size(self) -> int:
        return self._clamped_number_or_zero("vocab_size")

    @property
    def embedding_length(self) -> int:
        """Return the length of an embedding vector (``hidden_size``); 0 if it is not stated."""
        return self._clamped_number_or_zero("hidden_size")

    def _clamped_number_or_zero(self, key: str) -> int:
        value = in_config(self.config, key)
        return min(max(value, 0), _MOST_NUMBER) if type(value) is int else 0


def read_folder(path: Path, *, weights: bool = True) -> ModelFolder:
    """Return the facts of the model in the folder ``path``; raise :class:`NotModelFolder`.

    Without ``weights`` it is read as if it had none, whatever lies there.
    """
    files = _file_sizes(path)
    return _read_facts(path, files, _weights_files(path, files) if weights else [])


def read_openvino_folder(path: Path) -> ModelFolder:
    """Return the facts of a folder converted for OpenVINO; raise :class:`NotModelFolder`."""
    files = _file_sizes(path)
    missing = next((name for name in OPENVINO if name not in files), None)
    if missing is not None:
        raise NotModelFolder(path, f"it has no {missing}, so it is no text model for OpenVINO")
    return _read_facts(path, files, OPENVINO)


def _read_facts(path: Path, sizes: Mapping[str, int], weights: Sequence[str]) -> ModelFolder:
    config = read_object(path / CONFIG)
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or not architecture:
        raise NotModelFolder(path, f"{CONFIG} names no architecture (model_type)")
    length = in_config(config, "max_position_embeddings")
    length = 0 if length is None else length
    if type(length) is not int or length < 0:
        raise NotModelFolder(path, f"max_position_embeddings in {CONFIG} is not a number")
    if TOKENIZER not in sizes:
        other = next((name for name in ("tokenizer.model", "tekken.json") if name in sizes), None)
        raise NotModelFolder(
            path,
            f"its tokenizer is in {other}, which is not read here; "
            f"take a repository of the model that has {TOKENIZER}"
            if other
            else f"it has no {TOKENIZER}",
        )
    telling = [name for name in sizes if Path(name).suffix in _TELLING]
    return ModelFolder(
        path=path,
        architecture=architecture,
        context_length=length,
        chat_template=_chat_template_or_empty(path, sizes),
        file_size=sum(sizes[name] for name in weights),
        config=config,
        generation=read_object(path / GENERATION) if GENERATION in sizes else {},
        files=tuple(path / name for name in sorted({*telling, *weights})),
    )


def read_bytes(file: Path) -> bytes:
    """Return the content of a folder's file; raise :class:`NotModelFolder`, also if too large."""
    try:
        if not file.is_file():  # a pipe would be waited for
            raise NotModelFolder(file.parent, f"it has no file {file.name}")
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise NotModelFolder(file.parent, f"{file.name} cannot be read ({error})") from None
    if len(content) > _MOST_BYTES:
        raise NotModelFolder(file.parent, f"{file.name} has more than {_MOST_BYTES >> 20} MB")
    return content


def read_object(file: Path) -> dict[str, object]:
    """Return the JSON object in a file of a model folder; raise :class:`NotModelFolder`.

    Takes what Python writes (``Infinity``, ``NaN``), for configurations have it.
    """
    try:
        found = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise NotModelFolder(file.parent, f"{file.name} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise NotModelFolder(file.parent, f"{file.name} is not a JSON object")
    return found


def in_config(config: Mapping[str, object], key: str) -> object:
    """Return a value of a config.json; models of text and images have it under ``text_config``."""
    nested = config.get("text_config")
    value = config.get(key)
    return nested.get(key) if value is None and isinstance(nested, dict) else value


def _file_sizes(path: Path) -> dict[str, int]:
    try:
        if not path.is_dir():
            raise NotModelFolder(path, "there is no such folder")
        files = {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
    except (OSError, ValueError) as error:
        raise NotModelFolder(path, f"it cannot be read ({error})") from None
    if CONFIG not in files:
        raise NotModelFolder(path, f"it has no {CONFIG}, which says what the model is")
    return files


def _weights_files(path: Path, files: Mapping[str, int]) -> list[str]:
    # Where there is an index it decides, for other weights may lie in the folder.
    found = [name for name in files if name.endswith(".safetensors")]
    if INDEX in files:
        parts = read_object(path / INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise NotModelFolder(path, f"{INDEX} names no files (weight_map)")
        named = {str(name) for name in parts.values()}
        missing = min(named.difference(found), default=None)
        if missing is not None:
            raise NotModelFolder(path, f"its part {missing} is missing; fetch the whole repository")
        return list(named)
    if not found:
        binary = [name for name in files if name.endswith(".bin")]
        found = [name for name in binary if name not in (*_NO_WEIGHTS, *OPENVINO)]
    if not found and OPENVINO_MODEL in files:
        raise NotModelFolder(path, 'its weights are for `engine = "openvino"`')
    if not found:
        raise NotModelFolder(path, "it has no weights (*.safetensors)")
    return found


def _chat_template_or_empty(path: Path, files: Mapping[str, int]) -> str:
    if _TEMPLATE in files:
        try:
            return read_bytes(path / _TEMPLATE).decode()
        except UnicodeDecodeError:
            raise NotModelFolder(path, f"{_TEMPLATE} is not UTF-8") from None
    if "tokenizer_config.json" not in files:
        return ""
    template = read_object(path / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = {str(one.get("name")): one for one in template if isinstance(one, dict)}
        template = named.get("default", {}).get("template")
    if template is not None and not isinstance(template, str):
        raise NotModelFolder(path, "chat_template in tokenizer_config.json is not a text")
    return template or ""
