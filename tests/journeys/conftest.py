"""What every journey has: its steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from journeykit import Steps


@pytest.fixture
def steps(record_property: Callable[[str, object], None]) -> Steps:
    """The steps of this journey."""
    return Steps(record_property)
