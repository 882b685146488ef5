"""The command line of ``causerie chat``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import HERE, QUESTION, Plain


def chat(
    question: Annotated[str | None, typer.Argument(help=QUESTION)] = None,
    base_url: Annotated[
        str, typer.Option("--base-url", "-u", help="Base URL of the provider, with its /v1.")
    ] = HERE,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model id; otherwise the first one.")
    ] = None,
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Turn thinking on or off; else as it is."),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", "-s", help="System message.")] = None,
    tools: Annotated[
        Path | None,
        typer.Option("--tools", help="JSON file with tool definitions; you give the results."),
    ] = None,
    plain: Plain = False,
) -> None:
    """Chat in the terminal, or ask one question.

    The key for the provider is read from the variable CAUSERIE_API_KEY.
    Ctrl-C stops an answer; Ctrl-D leaves; `/help` lists commands like `/model`.
    Text that is piped goes before the question; stdin is read to its end.

    **Examples**

    `causerie chat`

    `causerie chat "Why is the sky blue?" --no-thinking`

    `git diff | causerie chat "Write a commit message." -u http://gpu:8000/v1`
    """
    from causerie.cli.chat import ChatWishes, asked, talk

    with reporting():
        talk(asked(question), base_url, model, ChatWishes(thinking, system, tools, plain))
