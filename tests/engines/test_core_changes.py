"""The log tells when a loaded model no longer has as many cores as threads."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress

import pytest
import structlog.testing

from causerie.engines.llamacpp.core_changes import tell_core_changes
from causerie.engines.machine_part import allowed_cpus, cores


@pytest.mark.asyncio
async def test_each_change_is_told_once() -> None:
    counts: list[int | None] = [4, None, 2, 2, 3, 4, 4]

    async def sleep(_: float) -> None:
        if not counts:
            raise asyncio.CancelledError

    with structlog.testing.capture_logs() as lines, suppress(asyncio.CancelledError):
        await tell_core_changes("small", 4, lambda: counts.pop(0), sleep)
    told = [(line["log_level"], line["cores"], line.get("threads")) for line in lines]
    assert told == [("warning", 2, 4), ("warning", 3, 4), ("info", 4, None)]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_a_process_that_runs_counts_by_its_own_affinity() -> None:
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert cores([], process=process.pid) == cores([])
        os.sched_setaffinity(process.pid, [min(allowed_cpus())])
        assert cores([], process=process.pid) == 1
        process.kill()
    with pytest.raises(ProcessLookupError):
        cores([], process=process.pid)
