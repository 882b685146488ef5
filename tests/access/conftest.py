"""Where the tests of limits count."""

from __future__ import annotations

import pytest
from limitkit import CountedIn
from valkeyserver import ValkeyServer


@pytest.fixture(scope="session", params=["memory", "shared"])
def limits_in(request: pytest.FixtureRequest) -> CountedIn:
    """Return the place of counts: this process, or a server of replicas."""
    if request.param != "shared":
        return "memory"
    made: ValkeyServer = request.getfixturevalue("valkey")
    return made
