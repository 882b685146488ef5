"""The command line of ``causerie show``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import Config, Set


def show(
    name: Annotated[str, typer.Argument(help="A short name, a reference, or a path.")],
    config: Config = None,
    pairs: Set = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show facts of a model, and how it would run on this machine.

    Most facts are read from the file, so they need a model that is fetched.

    **Examples**

    `causerie show smollm2`

    `causerie show ./model.gguf --json`
    """
    import msgspec

    from causerie.cli.show import facts_text, model_facts
    from causerie.cli.tables import print_facts

    with reporting():
        facts = model_facts(name, config, pairs)
        if as_json:
            typer.echo(msgspec.json.encode(facts))
            return
        print_facts([(key.replace("_", " "), facts_text(key, facts[key])) for key in facts])
