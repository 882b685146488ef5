"""Source of the settings in force, for components that change and reload them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Reloaded(Protocol):
    """Outcome of a reload: nothing has changed if there are problems."""

    @property
    def problems(self) -> Sequence[str]: ...


class Configuration(Protocol):
    """The configuration of a running service; ``file`` is unset where there is none."""

    @property
    def file(self) -> Path | None: ...
    async def reload(self) -> Reloaded:
        """Read the settings anew and serve by them."""
        ...
