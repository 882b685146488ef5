"""Reports of replicas on their targets, sent to each other through the shared server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import structlog
from msgspec import Struct

from causerie.distributed.broadcast import Broadcast
from causerie.routing.target_reports import TargetReport, TargetReporter

SECONDS = 1.0
_KEEP_ALIVE = 5  # intervals after which even an empty report is sent, so that silence means a fault
_MOST_BYTES = 2 * 1024 * 1024  # of a report, read in one piece: those of 40,000 requests
_log = structlog.get_logger(__name__)


class ReplicaReport(Struct, frozen=True):
    """Findings of one replica since its last report, by the names of targets."""

    targets: Mapping[str, TargetReport] = {}


class ReplicaReports:
    """Sends the reports of this replica, and learns from those of the others."""

    def __init__(self, broadcast: Broadcast, reporter: TargetReporter) -> None:
        self._broadcast = broadcast
        self._reporter = reporter

    async def run(self) -> None:
        """Send and listen, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            tasks.create_task(self._broadcast.listen(self._received))

    async def _send(self) -> None:
        quiet = 0
        while True:
            targets = self._reporter.taken()
            quiet = 0 if targets else quiet + 1
            if targets or quiet % _KEEP_ALIVE == 1:
                self._broadcast.send(msgspec.msgpack.encode(ReplicaReport(targets)))
            await asyncio.sleep(SECONDS)

    def _received(self, message: bytes) -> None:
        if len(message) > _MOST_BYTES:
            _log.warning("replicas.report_too_long", bytes=len(message))
            return
        try:
            report = msgspec.msgpack.decode(message, type=ReplicaReport)
        except msgspec.DecodeError:
            _log.warning("replicas.report_unreadable")  # of another version, perhaps
            return
        for name, of_target in report.targets.items():
            self._reporter.learn(name, of_target)
