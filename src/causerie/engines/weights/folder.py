"""A model as a folder, the way that Hugging Face repositories hold it.

    config.json              what the model is
    generation_config.json   what ends its texts, recommended sampling (may be absent)
    tokenizer_config.json    special tokens, perhaps the template (may be absent)
    tokenizer.json           the tokenizer
    chat_template.jinja      the template (may be absent)
    *.safetensors            the weights; else *.bin

Reads what its JSON says, believing none of it; knows no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from causerie.engines.weights.errors import NotModelFolder

TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"

_CONFIG = "config.json"
_TEMPLATE = "chat_template.jinja"
_INDEX = "model.safetensors.index.json"
_OTHER_TOKENIZERS = ("tokenizer.model", "tekken.json")
_NO_WEIGHTS = ("training_args.bin", "optimizer.bin")  # what training leaves behind
_TELLING = (".json", ".jinja", ".model")  # endings of what makes a model, alongside its weights
_MOST_BYTES = 256 << 20  # of one file that is read; the largest tokenizers have 40 MB


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Facts of a model folder, or of one without its weights."""

    path: Path
    architecture: str
    context_length: int
    """In tokens; 0 if unknown."""
    chat_template: str
    """Empty if there is none."""
    size: int
    """Of the weights, in bytes."""
    generation: Mapping[str, object]
    """The object in its generation_config.json; empty if there is none."""
    files: tuple[Path, ...]
    """All files that make it this model and no other: weights, configuration, tokenizer and
    template.
    """


def read_folder(path: Path, *, weights: bool = True) -> ModelFolder:
    """Return the facts of the model in the folder ``path``; raise :class:`NotModelFolder`.

    Without ``weights`` it is read as if it had none, whatever lies there.
    """
    files = _listed(path)
    if _CONFIG not in files:
        raise NotModelFolder(path, f"it has no {_CONFIG}, which says what the model is")
    config = read_object(path / _CONFIG)
    architecture = config.get("model_type")
    if not isinstance(architecture, str) or not architecture:
        raise NotModelFolder(path, f"{_CONFIG} names no architecture (model_type)")
    loaded = _weights(path, files) if weights else []
    if TOKENIZER not in files:
        raise NotModelFolder(path, _no_tokenizer(files))
    telling = [name for name in files if Path(name).suffix in _TELLING]
    return ModelFolder(
        path=path,
        architecture=architecture,
        context_length=_context_length(path, config),
        chat_template=_chat_template(path, files),
        size=sum(files[name] for name in loaded),
        generation=read_object(path / GENERATION) if GENERATION in files else {},
        files=tuple(path / name for name in sorted({*telling, *loaded})),
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


def _listed(path: Path) -> dict[str, int]:
    """Return the files of the folder by name, with their sizes in bytes."""
    try:
        if not path.is_dir():
            raise NotModelFolder(path, "there is no such folder")
        return {file.name: file.stat().st_size for file in path.iterdir() if file.is_file()}
    except (OSError, ValueError) as error:
        raise NotModelFolder(path, f"it cannot be read ({error})") from None


def _weights(path: Path, files: Mapping[str, int]) -> list[str]:
    """Return the names of the weight files: of an index where there is one, for others may lie
    alongside."""
    found = [name for name in files if name.endswith(".safetensors")]
    if _INDEX in files:
        parts = read_object(path / _INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise NotModelFolder(path, f"{_INDEX} names no files (weight_map)")
        named = {str(name) for name in parts.values()}
        missing = min(named.difference(found), default=None)
        if missing is not None:
            raise NotModelFolder(path, f"its part {missing} is missing; fetch the whole repository")
        return list(named)
    if not found:
        binary = [name for name in files if name.endswith(".bin")]
        found = [name for name in binary if name not in _NO_WEIGHTS]
    if not found:
        raise NotModelFolder(path, "it has no weights (*.safetensors)")
    return found


def _no_tokenizer(files: Mapping[str, int]) -> str:
    other = next((name for name in _OTHER_TOKENIZERS if name in files), None)
    if other is None:
        return f"it has no {TOKENIZER}"
    return (
        f"its tokenizer is in {other}, which is not read here; "
        f"take a repository of the model that has {TOKENIZER}"
    )


def _context_length(path: Path, config: Mapping[str, object]) -> int:
    length = in_config(config, "max_position_embeddings")
    if length is None:
        return 0
    if type(length) is not int or length < 0:
        raise NotModelFolder(path, f"max_position_embeddings in {_CONFIG} is not a number")
    return length


def _chat_template(path: Path, files: Mapping[str, int]) -> str:
    """Return the template: a file of its own goes before what the tokenizer's configuration has."""
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
