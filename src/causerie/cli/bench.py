"""``causerie bench``: how fast does an endpoint answer, with how many at a time?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from causerie.benchmark.figures import Figures
from causerie.benchmark.load import Asking, Load, Seen
from causerie.chat.separation import Separation
from causerie.cli.access import Access, KeyOptions, access
from causerie.cli.asking import HERE, explained, first_model
from causerie.cli.exits import CommandFailed, ExitCode, reporting
from causerie.cli.options import Config, settings_in_force
from causerie.cli.probe import KeyFile, KeyName, KeyText, Kind
from causerie.cli.stretches import line, show, watch
from causerie.cli.terminal import printable
from causerie.edge.ownership import owned
from causerie.transport.client import HttpClient, Reach
from causerie.upstreams.dialects import GENERIC
from causerie.upstreams.endpoint import Deadlines, Endpoint
from causerie.upstreams.remote import RemoteChat

_STREAMS = [1, 4, 16]
_MOST_STREAMS = 1024
_FIRST_SECONDS = 600.0  # a model may have to be loaded for the first reply


Streams = Annotated[
    list[int] | None,
    typer.Option(
        "--streams", "-s", min=1, max=_MOST_STREAMS,
        help="Replies at a time, several times for several stretches.  [default: 1, 4, 16]",
    ),
]  # fmt: skip
Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, max=3600, help="How long each stretch takes.")
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


def bench(
    base_url: Annotated[
        str, typer.Argument(help="Base address of the endpoint, with its /v1.")
    ] = HERE,
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
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    config: Config = None,
) -> None:
    """Measure how fast an endpoint answers, with so many replies at a time.

    For each number of streams: tokens a second, the time to the first token, and from one token to
    the next. Every stream asks anew when its reply has come to its end; each prompt is another one,
    so that no cache knows it. What the replies cost is for you to pay. Without one of the options
    for a key it is found as `causerie probe` finds it.

    **Examples**

    `causerie bench`

    `causerie bench http://gpu:8000/v1 -s 1 -s 32 -s 256 --seconds 30 --max-tokens 500`
    """
    with reporting():
        address = base_url.rstrip("/")
        loaded = settings_in_force(config, None)
        way = access(address, loaded, KeyOptions(key, key_env, key_file), dialect)
        asking = Asking(prompt_tokens, max_tokens, same, seconds)
        notes = Console(stderr=True)
        run = _Run(address, way, asking, notes)
        found = asyncio.run(run.figures(model, streams or _STREAMS))
        if as_json:
            typer.echo(msgspec.json.encode(found))
        else:
            show(Console(), found)
        if not any(one.replies for one in found):
            raise CommandFailed("no reply came to its end")


class _Run:
    """One run of the command."""

    def __init__(self, base_url: str, access: Access, asking: Asking, notes: Console) -> None:
        self._base_url = base_url
        self._access = access
        self._asking = asking
        self._notes = notes

    async def figures(self, model: str | None, streams: Sequence[int]) -> list[Figures]:
        """Those of each stretch. Raises :class:`CommandFailed`."""
        endpoint = self._endpoint(max(streams))
        try:
            name = model or await first_model(endpoint, self._base_url)
            load = Load(RemoteChat(endpoint, name, separators=Separation()), self._asking)
            self._say(f"{name} at {self._base_url}: the first reply, which is not counted")
            with explained(self._base_url):
                await load.once()  # the model may be loaded for it
            return [await self._stretch(load, count) for count in streams]
        finally:
            await endpoint.close()

    async def _stretch(self, load: Load, streams: int) -> Figures:
        seen = Seen()
        async with owned(watch(self._notes, streams, self._asking.seconds, seen)):
            found = await load.stretch(streams, seen)
        self._say(line(found))
        return found

    def _endpoint(self, streams: int) -> Endpoint:
        asking = self._asking
        reach = self._access.reach or Reach(connect_seconds=10)
        reach = replace(reach, max_connections=max(streams, reach.max_connections))
        try:
            client = HttpClient(self._base_url, reach)
        except ValueError as error:
            words = f"{self._base_url} is not an address: {error}"
            raise CommandFailed(words, ExitCode.USAGE) from error
        long = asking.seconds + asking.grace_seconds + _FIRST_SECONDS
        endpoint = Endpoint(
            "endpoint",
            client,
            self._access.dialect or GENERIC,
            credential=self._access.key,
            deadlines=Deadlines(first_token=_FIRST_SECONDS, between_chunks=long, total=long),
        )
        endpoint.candid = True
        return endpoint

    def _say(self, words: str) -> None:
        self._notes.print(printable(words), markup=False, highlight=False, soft_wrap=True)
