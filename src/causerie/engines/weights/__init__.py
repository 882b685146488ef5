"""Weights: references, the cache of downloads, and what a model file says about itself.

The names below are imported on first use, so that a process that only reads a
file's header or vocabulary does not load HTTP clients.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causerie.engines.weights.cache import Cache, CachedWeights
    from causerie.engines.weights.errors import WeightsError
    from causerie.engines.weights.fetching import fetch
    from causerie.engines.weights.folder_fetching import fetch_folder, fetch_for_openvino
    from causerie.engines.weights.options import HubOptions
    from causerie.engines.weights.progress import Progress, Silent
    from causerie.engines.weights.reference import DEFAULT_REFERENCE, Reference

__all__ = [
    "DEFAULT_REFERENCE",
    "Cache",
    "CachedWeights",
    "HubOptions",
    "Progress",
    "Reference",
    "Silent",
    "WeightsError",
    "fetch",
    "fetch_folder",
    "fetch_for_openvino",
]

_HOMES = {
    "Cache": "cache",
    "DEFAULT_REFERENCE": "reference",
    "HubOptions": "options",
    "Progress": "progress",
    "Reference": "reference",
    "Silent": "progress",
    "CachedWeights": "cache",
    "WeightsError": "errors",
    "fetch": "fetching",
    "fetch_folder": "folder_fetching",
    "fetch_for_openvino": "folder_fetching",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
