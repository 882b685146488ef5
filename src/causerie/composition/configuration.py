"""Where the settings in force come from, for who changes and reads them anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Reloaded(Protocol):
    """What became of a reload: nothing has changed where there are problems."""

    @property
    def problems(self) -> Sequence[str]: ...


class Configuration(Protocol):
    """The configuration of a running service; ``file`` is unset where there is none."""

    @property
    def file(self) -> Path | None: ...
    async def reload(self) -> Reloaded:
        """Read the settings anew and serve by them."""
        ...
