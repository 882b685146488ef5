"""``causerie bench``: how fast does a provider answer, with how many at a time?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import typer
from rich.console import Console

from causerie.benchmark.figures import Figures
from causerie.benchmark.load import BenchLoad, BenchProgress, BenchPrompt
from causerie.chat.separation import Separation
from causerie.cli.access import Access, KeyOptions, access
from causerie.cli.asking import explained, first_model, provider_at
from causerie.cli.exits import CommandFailed, ExitCode
from causerie.cli.runs import line, show, show_compared, watch
from causerie.cli.terminal import printable
from causerie.edge.ownership import owned
from causerie.providers.dialects import GENERIC
from causerie.providers.provider import Deadlines, Provider
from causerie.providers.target import ProviderTarget
from causerie.settings import Loaded
from causerie.transport.client import Reach

_STREAMS = [1, 4, 16]
_FIRST_SECONDS = 600.0  # a model may have to be loaded for the first reply


@dataclass(frozen=True, slots=True)
class Comparison:
    """The other side (a base URL, a file, or nothing), and the form in which it is shown."""

    compare: str | None
    as_json: bool


def measure_and_tell(
    own: tuple[str, Access],
    asking: BenchPrompt,
    loaded: Loaded,
    comparison: Comparison,
    model: str | None,
    streams: list[int] | None,
) -> None:
    """Measure a provider, and another in turns with it, and print what was found."""
    notes, compare = Console(stderr=True), comparison.compare
    runs = [_Run(*own, asking, notes)]
    before = _saved(compare) if compare is not None else None
    if compare is not None and before is None:
        other = compare.rstrip("/")
        runs.append(_Run(other, access(other, loaded, KeyOptions(), None), asking, notes))
    found, *others = asyncio.run(_in_turns(runs, model, streams or _STREAMS))
    _tell(found, others[0] if others else before, compare or "", as_json=comparison.as_json)
    if not any(one.replies for one in found):
        raise CommandFailed("no reply came to its end")


def _tell(
    here: Sequence[Figures], there: Sequence[Figures] | None, name: str, *, as_json: bool
) -> None:
    if as_json:
        both = here if there is None else {"here": here, "there": there}
        typer.echo(msgspec.json.encode(both))
        return
    show(Console(), here)
    if there is not None:
        show_compared(Console(), here, there, name)


def _saved(compare: str) -> list[Figures] | None:
    """Return the figures in a file; ``None`` for an address. Raises :class:`CommandFailed`."""
    if compare.startswith(("http://", "https://")):
        return None
    try:
        return msgspec.json.decode(Path(compare).read_bytes(), type=list[Figures])
    except OSError as error:
        words = f"{compare} is neither an address nor a file: {error.strerror}"
        raise CommandFailed(words, ExitCode.USAGE) from error
    except msgspec.MsgspecError as error:
        words = f"{compare} is no output of `causerie bench --json`: {error}"
        raise CommandFailed(words, ExitCode.USAGE) from error


async def _in_turns(
    runs: Sequence[_Run], model: str | None, streams: Sequence[int]
) -> list[list[Figures]]:
    """Return the figures of each provider. The first of a pair is the second of the next."""
    found: list[list[Figures]] = [[] for _ in runs]
    try:
        for run in runs:
            await run.begin(model, max(streams))
        for index, count in enumerate(streams):
            pairs = list(zip(runs, found, strict=True))
            for run, figures in pairs[::-1] if index % 2 else pairs:
                figures.append(await run.measure(count))
    finally:
        for run in runs:
            await run.close()
    return found


class _Run:
    """One provider that is measured."""

    def __init__(self, base_url: str, access: Access, asking: BenchPrompt, notes: Console) -> None:
        self._base_url = base_url
        self._access = access
        self._asking = asking
        self._notes = notes
        self._opened: Provider | None = None
        self._load: BenchLoad | None = None

    async def begin(self, model: str | None, most: int) -> None:
        """Have one reply, for up to ``most`` at a time later. Raises :class:`CommandFailed`."""
        provider = self._opened = self._provider(most)
        name = model or await first_model(provider, self._base_url)
        target = ProviderTarget(provider, name, separators=Separation())
        self._load = BenchLoad(target, self._asking)
        self._say(f"{name} at {self._base_url}: the first reply, which is not counted")
        with explained(self._base_url):
            await self._load.once()  # the model may be loaded for it

    async def measure(self, streams: int) -> Figures:
        """Return the figures of ``streams`` replies at a time, after :meth:`begin`."""
        assert self._load is not None
        seen = BenchProgress()
        async with owned(watch(self._notes, streams, self._asking.seconds, seen)):
            found = await self._load.run(streams, seen)
        self._say(f"{self._base_url}, {line(found)}")
        return found

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    def _provider(self, streams: int) -> Provider:
        asking = self._asking
        reach = self._access.reach or Reach(connect_seconds=10)
        reach = replace(reach, max_connections=max(streams, reach.max_connections))
        long = asking.seconds + asking.grace_seconds + _FIRST_SECONDS
        deadlines = Deadlines(first_token=_FIRST_SECONDS, between_chunks=long, total=long)
        dialect = self._access.dialect or GENERIC
        return provider_at(self._base_url, deadlines, self._access.key, dialect, reach)

    def _say(self, words: str) -> None:
        self._notes.print(printable(words), markup=False, highlight=False, soft_wrap=True)
