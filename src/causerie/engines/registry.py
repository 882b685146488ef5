"""Engines by name: the built-in ones that need no weights of ours, and those of other packages.

Another package offers an engine under the entry-point group
``causerie.engines``: a callable that takes the model's id, its ``ref`` from the
configuration and its ``options``, and returns a managed engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from causerie.engines.base import EngineFailed
from causerie.engines.fake import FakeEngine

if TYPE_CHECKING:  # settings name engines without loading what runs them
    from causerie.engines.fleet import ManagedEngine

GROUP = "causerie.engines"


class EngineFactory(Protocol):
    """Makes an engine; it is started by the fleet."""

    def __call__(self, model: str, ref: str | None, options: Mapping[str, Any]) -> ManagedEngine:
        """Raise :class:`EngineFailed` or :class:`ValueError` for options it does not take."""
        ...


def engine_names() -> list[str]:
    """Return the engines that a model can have here, those of other packages too."""
    return sorted({"llamacpp", "openvino", "vllm", "fake", *entry_points(group=GROUP).names})


def engine_factory(name: str) -> EngineFactory:
    """Return the factory of that name; raise :class:`EngineFailed` with the known names."""
    if name == "fake":
        return FakeEngine.from_options
    for entry in entry_points(group=GROUP, name=name):
        try:
            factory: EngineFactory = entry.load()
        except (ImportError, AttributeError) as error:
            raise EngineFailed(
                f"the engine {name} of another package ({entry.value}) cannot be loaded: {error}"
            ) from error
        return factory
    raise EngineFailed(f"there is no engine named {name}; known are {', '.join(engine_names())}")
