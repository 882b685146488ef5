"""The operator's settings: one frozen tree, read from one file, flags and the environment.

The only room that reads configuration files and environment variables. It knows the shape and
the limits of the values; the composition root hands them to an engine, a door or a log, which
know their meaning.
"""

from __future__ import annotations

from causerie.settings.catalog import AliasSettings, AliasTarget
from causerie.settings.console import BrandingSettings, ConsoleSettings, IdentityProvider
from causerie.settings.engine import LlamaCpp, OpenVino, Vllm
from causerie.settings.load import Loaded, load
from causerie.settings.problems import Problem, SettingsError
from causerie.settings.provider import (
    HealthCheckSettings,
    ProviderModelSettings,
    ProviderSettings,
    TimeoutSettings,
    TlsSettings,
)
from causerie.settings.store import SharedSettings, StoreSettings
from causerie.settings.tree import (
    DEFAULT_MODEL,
    DoorSettings,
    EngineLimits,
    LoggingSettings,
    ModelSettings,
    QueueSettings,
    ServerSettings,
    Settings,
    Tracing,
    WeightsSettings,
)
from causerie.settings.values import LimitSettings, PriceSettings, Secret

__all__ = [
    "DEFAULT_MODEL",
    "AliasSettings",
    "AliasTarget",
    "BrandingSettings",
    "ConsoleSettings",
    "DoorSettings",
    "EngineLimits",
    "HealthCheckSettings",
    "IdentityProvider",
    "LimitSettings",
    "LlamaCpp",
    "Loaded",
    "LoggingSettings",
    "ModelSettings",
    "OpenVino",
    "PriceSettings",
    "Problem",
    "ProviderModelSettings",
    "ProviderSettings",
    "QueueSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "SharedSettings",
    "StoreSettings",
    "TimeoutSettings",
    "TlsSettings",
    "Tracing",
    "Vllm",
    "WeightsSettings",
    "load",
]
