"""Distribution of tests among processes."""

from __future__ import annotations

import pytest


def test_of_several_processes_one_runs_all_of_a_file(request: pytest.FixtureRequest) -> None:
    """Without groups each test goes anywhere, and all processes load all engines."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("no groups are asked for (`--dist loadgroup`)")
    assert request.node.nodeid.endswith(f"@{request.path}")
