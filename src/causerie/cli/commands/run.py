"""The command line of ``causerie run``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Context, Plain, Set


def run(
    name: Annotated[
        str, typer.Argument(help="Short name, reference, or id of a configured or running model.")
    ],
    prompt: Annotated[
        str | None, typer.Argument(help="Ask this and leave; `-` or a pipe reads it from stdin.")
    ] = None,
    context: Context = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Turn thinking on or off; else as it is."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", "-s", help="System message.")] = None,
    plain: Plain = False,
    config: Config = None,
    pairs: Set = None,
) -> None:
    """Chat with a model on this machine, or ask one question.

    A running service that has the model answers. Otherwise the model is
    fetched if needed, and loaded for as long as the command runs.

    **Examples**

    `causerie run qwen3:0.6b`

    `causerie run smollm2 "Why is the sky blue?"`

    `git diff | causerie run qwen3:4b --system "Write a commit message."`
    """
    from causerie.cli.commands.chat import chat
    from causerie.cli.run import _answering

    with reporting(), _answering(name, context, config, pairs) as (base_url, model):
        chat(prompt, base_url=base_url, model=model, thinking=thinking, system=system, plain=plain)
