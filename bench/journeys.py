"""How long the first day takes: the steps of each journey of tests/journeys, with their seconds.

    make bench BENCH=bench/journeys.py [ARGS="--only team --write"]

Prints a table for each journey, and with `--write` puts it into the page of docs/start. The
journeys are the tests themselves, so a step that fails ends the benchmark with the test's own
words.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from journeykit import STEP

ROOT = Path(__file__).parents[1]
FOLDER, PAGES = ROOT / "tests" / "journeys", ROOT / "docs" / "start"
TABLE = re.compile(r"(?<=<!-- steps -->\n).*?(?=<!-- end of steps -->)", re.DOTALL)


class StepCollector:
    """The steps that the tests record, by test file."""

    def __init__(self) -> None:
        self.found: dict[str, Sequence[tuple[str, float]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test has recorded once it is over."""
        if report.when == "teardown":
            name = Path(report.location[0]).stem.removeprefix("test_journey_")
            steps: list[Any] = [value for key, value in report.user_properties if key == STEP]
            self.found[name] = steps


def table(steps: Sequence[tuple[str, float]]) -> str:
    """Return the steps and their sum as a table of Markdown."""
    rows = [*steps, ("Together", sum(seconds for _, seconds in steps))]
    lines = [f"| {title} | {seconds:.1f} |" for title, seconds in rows]
    return "\n".join(["| step | seconds |", "|---|---|", *lines])


def circumstances(busy: float) -> str:
    """Return how the seconds were measured; ``busy`` is the load average before the run."""
    cores, day = os.cpu_count() or 1, datetime.now(UTC)
    shared = " They were shared with other programs, so a quiet machine is faster." * (busy > cores)
    return (
        f"One run on {day:%d %B %Y}, {platform.machine()}, {cores} cores, load average {busy:.0f} "
        f"before it.{shared}\nThe seconds are those of the clock."
    )


def write(page: Path, steps: Sequence[tuple[str, float]], how: str) -> None:
    """Put the table and how it was made into the page, between its two comments."""
    text, count = TABLE.subn(f"{table(steps)}\n\n{how}\n", page.read_text(encoding="utf-8"))
    assert count == 1, page
    page.write_text(text, encoding="utf-8")


def main() -> int:
    """Run the journeys and print their steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="one journey: laptop, team or catalog")
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    asked = parser.parse_args()
    chosen = f"test_journey_{asked.only}*.py"
    files = [str(file) for file in sorted(FOLDER.glob(chosen))]
    collector = StepCollector()
    how = circumstances(os.getloadavg()[1])
    status = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *files], [collector])
    for name, steps in collector.found.items():
        print(f"\n{name}\n\n{table(steps)}")
        if asked.write and status == pytest.ExitCode.OK:
            write(PAGES / f"{name}.md", steps, how)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
