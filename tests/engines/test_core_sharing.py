"""Models that compute on the same cores at once: who is told to spin shortly, and what does it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from waiting import eventually

from causerie.engines.base import TextRequest
from causerie.engines.llamacpp.core_sharing import CoreSharing, CoreUser
from causerie.engines.llamacpp.engine import LlamaCppEngine
from causerie.engines.llamacpp.options import LlamaCppOptions
from causerie.engines.llamacpp.spins import ShortSpins
from causerie.engines.machine_part import cores


class Model:
    """A model with as many threads as there are cores, and what its process has heard."""

    def __init__(self, threads: int) -> None:
        self.user = CoreUser(threads)
        self.heard: list[bool] = []
        self.user.is_now(self.heard.append)


def test_models_that_compute_at_once_spin_shortly_until_one_is_left() -> None:
    one, other, sharing = Model(cores()), Model(cores()), CoreSharing()
    sharing.begin(one.user)
    assert one.heard == []
    sharing.begin(other.user)
    assert (one.heard, other.heard) == ([True], [True])
    sharing.end(one.user)
    assert (one.heard, other.heard) == ([True], [True, False])
    sharing.begin(one.user)  # it knows
    assert (one.heard, other.heard) == ([True], [True, False, True])


def test_models_whose_threads_all_have_a_core_spin_for_long() -> None:
    half = max(cores() // 2, 1)
    models = [Model(half) for _ in range(cores() // half)]
    sharing = CoreSharing()
    for each in models:
        sharing.begin(each.user)
    assert not any(each.heard for each in models)


def test_a_new_process_is_told_again_and_a_model_without_one_never() -> None:
    one, other, sharing = Model(cores()), CoreUser(cores()), CoreSharing()
    sharing.begin(one.user)
    sharing.begin(other)
    sharing.end(one.user)
    heard: list[bool] = []
    one.user.is_now(heard.append)
    sharing.begin(one.user)
    assert (one.heard, heard) == ([True], [True])


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP on Linux")
async def test_a_loaded_model_hears_of_another_one_that_computes(tiny_gguf: Path) -> None:
    threads = os.cpu_count() or 1  # so that the team has two sleepers
    sharing, other = CoreSharing(), CoreUser(threads)
    options = LlamaCppOptions(context=256, parallel=1, threads=threads)
    engine = LlamaCppEngine("small", tiny_gguf, options, sharing=sharing)
    await engine.start()
    try:
        prompt = await engine.tokenize(["one two three"], special=False)
        async with engine.generate(TextRequest(prompt, 8, ignore_eos=True)) as outputs:
            assert [one async for one in outputs]
            tasks = Path(f"/proc/{engine.pid}/task")
            before = len(list(tasks.iterdir()))

            async def sleepers(count: int) -> bool:
                return len(list(tasks.iterdir())) == before + count

            sharing.begin(other)
            await eventually(lambda: sleepers(2))
            sharing.end(other)
            await eventually(lambda: sleepers(0))
    finally:
        await engine.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP on Linux")
async def test_a_team_that_sleeps_is_there_while_it_is_switched_on() -> None:
    spins = ShortSpins("libgomp.so.1", os.cpu_count() or 1)
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())

    async def team(count: int) -> bool:
        return len(set(tasks.iterdir()) - before) == count

    async def there() -> bool:
        return await team(2)

    async def gone() -> bool:
        return await team(0)

    for _ in range(2):
        spins.switch(on=True)
        spins.switch(on=True)
        await eventually(there)
        spins.switch(on=False)
        spins.switch(on=False)
        await eventually(gone)
