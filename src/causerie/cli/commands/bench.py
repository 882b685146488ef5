"""The command line of ``causerie bench``."""

from __future__ import annotations

from typing import Annotated

import typer

from causerie.cli.exits import reporting
from causerie.cli.options import HERE, Config, KeyFile, KeyName, KeyText, Kind

_MOST_STREAMS = 1024


Streams = Annotated[
    list[int] | None,
    typer.Option(
        "--streams", "-s", min=1, max=_MOST_STREAMS,
        help="Replies at a time, several times for several runs.  [default: 1, 4, 16]",
    ),
]  # fmt: skip


Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, max=3600, help="How long each run takes.")
]


PromptTokens = Annotated[
    int, typer.Option("--prompt-tokens", min=1, max=1_000_000, help="About so many in a prompt.")
]


MaxTokens = Annotated[
    int, typer.Option("--max-tokens", min=1, max=1_000_000, help="At most so many in a reply.")
]


Same = Annotated[
    bool, typer.Option("--same", help="The same prompt each time, so that prompt caches help.")
]


Compare = Annotated[
    str | None,
    typer.Option(
        "--compare", metavar="URL|FILE",
        help="Another provider, measured in turns, or a file with the output of --json.",
    ),
]  # fmt: skip


def bench(
    base_url: Annotated[str, typer.Argument(help="Base URL of the provider, with its /v1.")] = HERE,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model id; otherwise the first one.")
    ] = None,
    streams: Streams = None,
    seconds: Seconds = 10.0,
    prompt_tokens: PromptTokens = 200,
    max_tokens: MaxTokens = 128,
    same: Same = False,
    key: KeyText = None,
    key_env: KeyName = None,
    key_file: KeyFile = None,
    dialect: Kind = None,
    compare: Compare = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    config: Config = None,
) -> None:
    """Measure how fast a provider answers, with so many replies at a time.

    For each number of streams: tokens per second, the time to the first token, and from one token
    to the next. Every stream asks anew when its reply has come to its end; each prompt is another
    one, so that no cache knows it. What the replies cost is for you to pay. Without one of the
    options for a key it is found as `causerie probe` finds it.

    Another provider to compare with is asked for the same model, and without one for its first.

    **Examples**

    `causerie bench`

    `causerie bench --compare http://127.0.0.1:11434/v1`

    `causerie bench http://gpu:8000/v1 -s 1 -s 32 -s 256 --seconds 30 --max-tokens 500`
    """
    from causerie.benchmark.load import BenchPrompt
    from causerie.cli.access import KeyOptions, access
    from causerie.cli.bench import Comparison, measure_and_tell
    from causerie.cli.in_force import settings_in_force

    with reporting():
        address = base_url.rstrip("/")
        loaded = settings_in_force(config, None)
        reach = access(address, loaded, KeyOptions(key, key_env, key_file), dialect)
        asking = BenchPrompt(prompt_tokens, max_tokens, same, seconds)
        measure_and_tell(
            (address, reach), asking, loaded, Comparison(compare, as_json), model, streams
        )
