"""The command line of ``causerie run``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import QUESTION, Config, Context, Plain, Set


def run(
    name: Annotated[
        str, typer.Argument(help="Short name, reference, or id of a configured or running model.")
    ],
    prompt: Annotated[str | None, typer.Argument(help=QUESTION)] = None,
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
    fetched if needed, and loaded for as long as the command runs. Text that is
    piped goes before the question; stdin is read to its end.

    **Examples**

    `causerie run qwen3:0.6b`

    `causerie run smollm2 "Why is the sky blue?"`

    `cat report.txt | causerie run smollm2 "Summarize this."`
    """
    from causerie.cli.chat import ChatWishes, asked, talk
    from causerie.cli.run import answering

    with reporting():
        question = asked(prompt)  # what is wrong with it is told before a model is loaded
        with answering(name, context, config, pairs) as (base_url, model):
            talk(question, base_url, model, ChatWishes(thinking, system, None, plain))
