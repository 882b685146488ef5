"""Tasks that outlive the test that began them, on purpose."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

LASTING_TASKS: WeakSet[asyncio.Task[Any]] = WeakSet()
