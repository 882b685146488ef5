"""What the operator decided: one frozen tree, read from one file, flags and the environment.

The only room that reads configuration files and environment variables. It
knows the shape and the limits of the values; what they mean to an engine, a
door or a log is the business of whoever gets them from the composition root.
"""

from __future__ import annotations

from causerie.settings.alias import Alias, Target
from causerie.settings.endpoint import Endpoint, EndpointModel, Health, Timeouts, Tls
from causerie.settings.engine import LlamaCpp, Vllm
from causerie.settings.identity import IdentityProvider
from causerie.settings.limits import Limits
from causerie.settings.load import Loaded, load
from causerie.settings.price import Price
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.shared import Shared
from causerie.settings.store import Console, Store
from causerie.settings.tracing import Tracing
from causerie.settings.tree import (
    DEFAULT_MODEL,
    Door,
    Engines,
    Logging,
    Model,
    Queue,
    Sampling,
    Server,
    Settings,
    Weights,
)
from causerie.settings.values import Secret

__all__ = [
    "DEFAULT_MODEL",
    "Alias",
    "Console",
    "Door",
    "Endpoint",
    "EndpointModel",
    "Engines",
    "Health",
    "IdentityProvider",
    "Limits",
    "LlamaCpp",
    "Loaded",
    "Logging",
    "Model",
    "Price",
    "Problem",
    "Queue",
    "Sampling",
    "Secret",
    "Server",
    "Settings",
    "SettingsError",
    "Shared",
    "Store",
    "Target",
    "Timeouts",
    "Tls",
    "Tracing",
    "Vllm",
    "Weights",
    "load",
]
