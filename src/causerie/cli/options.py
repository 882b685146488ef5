"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

HERE = "http://127.0.0.1:8000/v1"  # where `causerie serve` answers
QUESTION = "Ask this and leave, about the text on stdin if some is piped; `-`: stdin is all."
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Configuration file; otherwise ./causerie.toml where there is one."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set one setting, like `engines.memory_budget=6GiB`."
    ),
]
Engine = Annotated[
    Literal["llamacpp", "openvino", "vllm"] | None,
    typer.Option(
        "--engine",
        help="llamacpp loads a GGUF file, vllm a model folder, openvino a GGUF file or a folder "
        "that was converted for it. [default: what the weights need; llamacpp for a GGUF file]",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Show Markdown as it is written.")]
Database = Annotated[
    bool, typer.Option("--database", help="With the entries that the database of accounts holds.")
]
KeyText = Annotated[str | None, typer.Option("--key", help="The key; others may see it.")]
KeyName = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Variable with the key.")
]
KeyFile = Annotated[Path | None, typer.Option("--key-file", help="File with the key.")]
Kind = Annotated[
    str | None, typer.Option("--dialect", help="Kind of server; otherwise guessed from its models.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def context_of(text: str) -> str | int:
    """Return the number of tokens, or `auto`."""
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number of tokens nor `auto`") from None


Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        parser=context_of,
        metavar="TOKENS",
        help="Tokens of prompt and output of one request; `auto` takes what fits.",
    ),
]
