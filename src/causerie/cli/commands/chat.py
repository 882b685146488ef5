"""The command line of ``causerie chat``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import HERE, Plain


def chat(
    question: Annotated[
        str | None, typer.Argument(help="Ask this and leave; `-` or a pipe reads it from stdin.")
    ] = None,
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

    **Examples**

    `causerie chat`

    `causerie chat "Why is the sky blue?" --no-thinking`

    `git diff | causerie chat --system "Write a commit message." -u http://gpu:8000/v1`
    """
    import asyncio

    from causerie.chat.separation import Separation
    from causerie.cli.asking import first_model
    from causerie.cli.chat import _asked, _fields, _provider, _Talk, _text
    from causerie.cli.conversation import Conversation
    from causerie.providers.target import ProviderTarget

    with reporting(), asyncio.Runner() as runner:
        provider = _provider(base_url)
        try:
            fields = _fields(thinking, tools)
            name = model or runner.run(first_model(provider, base_url))
            target = partial(ProviderTarget, provider, separators=Separation())
            says = Conversation(target, name, fields, _text(system) if system else None)
            talk = _Talk(runner, says, provider, base_url, plain=plain)
            asked = _asked(question)
            if asked is not None:
                talk.once(asked)
            else:
                talk.at_length(f"{name} at {base_url}")
        finally:
            runner.run(provider.close())
