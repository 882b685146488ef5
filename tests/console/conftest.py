"""One loop for all tests of the console, for a browser lives in the loop that it was opened in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from browserkit import kept_browser


@pytest.fixture(scope="session")
def lasting_runner() -> Iterator[asyncio.Runner]:
    """The loop, with the browser that its first window opens and that all others share."""
    with asyncio.Runner() as runner, kept_browser(runner):
        yield runner


@pytest.fixture
def _function_scoped_runner(lasting_runner: asyncio.Runner) -> asyncio.Runner:
    """What pytest-asyncio runs tests and fixtures in: it would make one for each test."""
    return lasting_runner
