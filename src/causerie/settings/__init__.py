"""What the operator decided: one frozen tree, read from one file, flags and the environment.

The only room that reads configuration files and environment variables. It
knows the shape and the limits of the values; what they mean to an engine, a
door or a log is the business of whoever gets them from the composition root.
"""

from __future__ import annotations

from causerie.settings.load import Loaded, load
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.tree import (
    DEFAULT_MODEL,
    Door,
    Engines,
    LlamaCpp,
    Logging,
    Model,
    Queue,
    Sampling,
    Server,
    Settings,
    Weights,
)

__all__ = [
    "DEFAULT_MODEL",
    "Door",
    "Engines",
    "LlamaCpp",
    "Loaded",
    "Logging",
    "Model",
    "Problem",
    "Queue",
    "Sampling",
    "Server",
    "Settings",
    "SettingsError",
    "Weights",
    "load",
]
