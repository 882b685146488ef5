"""Costs of one input of an entry, to a service in this process.

Counted are the processor time of the event loop in one piece, that of all threads together, and the
memory that is taken meanwhile. A busy machine makes none of them larger.
"""

import ctypes
import gc
import itertools
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hostilekit import Case, Entry, drawing, shrink
from loopkit import Watch, slowness
from sitekit import NO_ANSWER

from causerie.engines.registry import FakeEngine

WORK_SECONDS = 1.0
"""Processor time of all threads for one input, on a usual machine."""
TAKEN_MB = 256.0
"""Memory that one input may take while it is handled."""
INTERNAL = 500
_SAMPLE_SECONDS = 0.002
_HERE = str(Path(__file__).parent.parent / "src")


@dataclass(frozen=True)
class Costs:
    """Measurements of one input; times are of a processor, in seconds."""

    watch: Watch
    status: int
    work: float
    """Of all threads."""
    taken: float
    """Memory in MB, at most."""
    place: str = ""
    """The places of the source where most of the work was, if they were looked for."""

    def excess(self, usual_work: float) -> str:
        """Return what is more than may be; empty where nothing is."""
        found = []
        more = self.work - usual_work
        if self.watch.too_long:
            found.append(f"{self.watch.longest * 1000:.0f} ms in one piece of the loop")
        if more > WORK_SECONDS and more > WORK_SECONDS * slowness():
            found.append(f"{more:.1f} s of all threads")
        if self.taken > TAKEN_MB:
            found.append(f"{self.taken:.0f} MB")
        if self.status == INTERNAL:
            found.append("status 500")
        if self.status == NO_ANSWER:
            found.append("no answer")
        return ", ".join(found)


async def costs(entry: Entry, case: Case, *, sampled: bool = False) -> Costs:
    """Send a case and return what it cost; ``sampled`` finds where in the source."""
    made = entry.input(case)
    watch, places = Watch(), Counter[str]()
    before, work = _reset_peak(), time.process_time()
    with watch.looking(), _sampling(places if sampled else None):
        status = await entry.send(made)
    spent = time.process_time() - work - watch.apart
    place = ", ".join(f"{name} ({count})" for name, count in places.most_common(3))
    return Costs(watch, status, spent, _peak() - before, place)


class Search:
    """Sends cases, and makes those that cost too much smaller while they still do."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries
        self.sent = 0
        self._usual: dict[str, float] = {}  # work for the usual input, by entry

    async def prepare(self, only: str = "") -> None:
        """Send the usual input of each entry: templates are compiled, caches are filled."""
        for name in self.entries:
            if only in name:
                await self._usual_work(name)

    async def findings(self, seed: str, seconds: float, only: str = "") -> AsyncIterator[str]:
        """Yield findings among cases drawn from a seed, in turns of all entries, for a while.

        The first turns take each place with each family, in any order.
        """
        end = time.monotonic() + seconds
        drawn = {
            name: drawing(entry, random.Random(f"{seed} {name}"))
            for name, entry in self.entries.items()
            if only in name
        }
        for cases in itertools.cycle(drawn.values()):
            if time.monotonic() > end:
                return
            if found := await self.finding(next(cases)):
                yield found

    async def finding(self, case: Case, tries: int = 40) -> str:
        """Return a line on the smallest case found that costs too much like this; or nothing.

        What is seen once is asked again: templates are compiled at their first use.
        """
        if not await self._fails(case) or not await self._fails(case):
            return ""
        small = await shrink(case, self._fails, tries) if tries else case
        return await self.report(small) or await self.report(case)

    async def report(self, case: Case) -> str:
        """Return a line on what a case costs; empty if that is not too much."""
        found = await costs(self.entries[case.entry], case, sampled=True)
        excess = found.excess(await self._usual_work(case.entry))
        return f"{case}\n    {found.status}: {excess}; {found.place}" if excess else ""

    async def _fails(self, case: Case) -> bool:
        self.sent += 1
        usual = await self._usual_work(case.entry)
        return bool((await costs(self.entries[case.entry], case)).excess(usual))

    async def _usual_work(self, name: str) -> float:
        if name not in self._usual:
            entry, usual = self.entries[name], Case(name, ())
            await costs(entry, usual)  # the first one compiles and imports
            self._usual[name] = (await costs(entry, usual)).work
        return self._usual[name]


def resident() -> float:
    """Return the memory of this process in MB, after what is of no use has been given up.

    The inputs are made in this process too, so what the allocator keeps of them is given back. The
    fake engine keeps its last requests for tests, which no other engine does.
    """
    for engine in [each for each in gc.get_objects() if isinstance(each, FakeEngine)]:
        engine.requests.clear()
        engine._cached_prompts.clear()
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _reset_peak() -> float:
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024


@contextmanager
def _sampling(places: Counter[str] | None) -> Iterator[None]:
    """Count the places of the source in which threads are while the processor is used."""
    if places is None:
        yield
        return

    def note(_: int, frame: FrameType | None) -> None:
        for thread, seen in sys._current_frames().items():
            at = _own(frame if thread == threading.get_ident() else seen)
            if at:
                places[at] += 1

    before, woken = signal.signal(signal.SIGPROF, note), signal.set_wakeup_fd(-1)
    signal.setitimer(signal.ITIMER_PROF, _SAMPLE_SECONDS, _SAMPLE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        signal.set_wakeup_fd(woken)


def _own(frame: FrameType | None) -> str:
    """Return the innermost place of the service's own source in a stack."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_HERE):
            name = file.removeprefix(f"{_HERE}/causerie/")
            return f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""
