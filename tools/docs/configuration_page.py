"""Generate ``docs/reference/configuration.md`` from the settings' types and descriptions."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, get_args, get_origin

import msgspec

from causerie.protocol.declaration import metas
from causerie.settings.decode import describe, extras, plain, table_of
from causerie.settings.load import leaves, variable
from causerie.settings.tree import Settings

_HEAD = """\
# Configuration

Everything has a default, so no file is needed. One file, `causerie.toml`, can set what is below:
the one named by `--config`, else by the variable `CAUSERIE_CONFIG`, else in the working directory.
Later wins: defaults, variables of other programs (`HF_TOKEN` …), the file, `CAUSERIE_…`
variables, flags. Files that settings name are relative to the folder of the configuration file.

`causerie check` says whether a configuration holds, and what is in force. An unknown or wrong
setting is refused with its line, and every problem is reported in one run, missing secrets and
files too; nothing is used of a file that is wrong anywhere. The command also looks for weights
that are named by a path; a service does so when it loads the model. A running
service takes a changed file after `causerie reload`; see [doors](../guides/doors.md).

```toml
[server]
host = "0.0.0.0"
keys = ["ck_5RkT0yQz:73300871f44c168e7c949de2c750e60c2c9bb8ff530017c5a267234e9cb4db8e"]

[[models]]                                   # one that this service runs itself
id = "qwen3-4b"
ref = "hf:Qwen/Qwen3-4B-GGUF:Q4_K_M"

[models.llamacpp]
context = 16384
parallel = 8

[[providers]]                                # one that others run
name = "vllm-a"
base_url = "http://10.0.0.5:8000/v1"
dialect = "vllm"
key = { env = "VLLM_KEY" }

[[aliases]]                                  # a model behind the gateway
id = "qwen"
targets = [
  { provider = "vllm-a", model = "Qwen/Qwen3-8B", weight = 2 },
  { model = "qwen3-4b", priority = 1 },      # where no target of priority 0 answers
]
```

A secret never stands in the file. Where one is needed, the file says where it is found when the
service starts and at each reload: `{ env = "NAME" }`, `{ file = "PATH" }`, or
`{ command = ["PROGRAM", "ARGUMENT"] }`, whose output it is (no shell is involved). A command gets
`PATH`, `HOME` and the like, and the variables that `environment = ["NAME"]` adds. Keys of providers
[may change](../guides/changing-keys.md) while the service runs.

This page is written from the program itself by `make docs`.
"""


def configuration_page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for field in msgspec.structs.fields(Settings):
        parts.extend(_section(_struct(field.type), field))
    return "\n".join(parts)


def _section(kind: type[msgspec.Struct], section: Any) -> Iterator[str]:
    name = section.name
    yield f"## `{_title(name, section.type)}`\n"
    yield f"{inspect.getdoc(kind)}\n"
    yield from _table(kind, name)
    yield from _inner(kind, name)


def _inner(kind: type[msgspec.Struct], name: str) -> Iterator[str]:
    """The tables inside a table, however deep."""
    for field in msgspec.structs.fields(kind):
        inner = _struct(field.type) or table_of(plain(field.type))
        if inner is not None:
            place = f"{name}.{field.name}"
            yield f"### `{_title(place, field.type)}`\n"
            yield f"{inspect.getdoc(inner)}\n"
            yield from _table(inner, place)
            yield from _inner(inner, place)


def _title(name: str, kind: Any) -> str:
    return f"[[{name}]]" if get_origin(plain(kind)) is tuple else f"[{name}]"


def _table(kind: type[msgspec.Struct], name: str) -> Iterator[str]:
    yield "| setting | takes | default | |"
    yield "|---|---|---|---|"
    for field in msgspec.structs.fields(kind):
        if _struct(field.type) is None:
            cells = (
                f"`{field.name}`",
                describe(field.type),
                _default(field),
                _sentence(kind, field) + _variables(name, field),
            )
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _default(field: Any) -> str:
    if field.required:
        return "*required*"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if value is None or isinstance(value, msgspec.Struct):
        return ""
    return f"`{msgspec.json.encode(value).decode()}`"


def _sentence(kind: type[msgspec.Struct], field: Any) -> str:
    written = _docstrings(kind).get(field.name)
    found = [written] if written else [meta.description for meta in metas(field.type)]
    sentences = list(filter(None, found))
    if not sentences:
        raise LookupError(f"{kind}.{field.name} has no description; the reference needs one")
    return sentences[-1]


@cache
def _docstrings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The text below each field of a struct, as its source has it."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            assert isinstance(body, ast.ClassDef)
            for field, text in pairwise(body.body):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    match text:
                        case ast.Expr(value=ast.Constant(value=str(sentence))):
                            found[field.target.id] = " ".join(sentence.split())
    return found


def _variables(name: str, field: Any) -> str:
    path = (*name.split("."), field.encode_name)
    if path not in dict(leaves(Settings)):
        return ""
    foreign = extras(field.type).get("variable")
    names = [variable(path), *([foreign] if foreign else [])]
    return " " + ", ".join(f"`{each}`" for each in names)


def _struct(kind: Any) -> Any:
    """The struct that a setting is, or is a list of; ``None`` for a plain value."""
    bare = plain(kind)
    if get_origin(bare) is tuple:
        bare = get_args(bare)[0]
    if get_origin(bare) is types.UnionType or not isinstance(bare, type):
        return None
    return bare if issubclass(bare, msgspec.Struct) else None


if __name__ == "__main__":
    sys.stdout.write(configuration_page())
