"""Rules for a service of several worker processes, each of which is a whole service."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from causerie.settings.addresses import has_accounts
from causerie.settings.limits import LimitSettings
from causerie.settings.lines import Path as KeyPath
from causerie.settings.problems import Broken
from causerie.settings.tree import ServerSettings, Settings

_AT = ("server", "workers")


def worker_count(server: ServerSettings) -> int:
    """Return the number of worker processes; 1 if the service is one process."""
    if server.workers != "auto":
        return server.workers
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def worker_rules(settings: Settings) -> Iterator[Broken]:
    """Yield what several processes cannot keep."""
    count = worker_count(settings.server)
    if count == 1:
        return
    if sys.platform == "win32":
        yield Broken(_AT, "is more than 1; several processes need Linux or macOS")
    yield from _own_models(settings, count)
    for index, provider in enumerate(settings.providers):
        if provider.max_concurrent is not None and provider.max_concurrent < count:
            at = ("providers", index, "max_concurrent")
            yield Broken(at, f"is less than the {count} workers, among whom it is divided")
    if settings.shared.url is None:
        yield from _counts(settings, count)


def _own_models(settings: Settings, count: int) -> Iterator[Broken]:
    for index, model in enumerate(settings.models):
        if model.engine != "vllm" or not model.vllm.elsewhere:
            yield Broken(
                ("models", index),
                f"is run by this machine, and each of {count} workers would load it; serve it by "
                "a service of its own with one worker, and name that one in `providers` here",
            )


def _counts(settings: Settings, count: int) -> Iterator[Broken]:
    if has_accounts(settings):
        advice = "keys of accounts have limits and budgets, which workers count together in Valkey"
        yield Broken(_AT, f"is {count}, and {advice}: set `shared.url`, or `server.workers = 1`")
    for place, limits in _limits(settings):
        if limits != LimitSettings():
            yield Broken(
                place,
                f"count in each of {count} workers for itself; set `shared.url`, in which workers "
                "count together, or `server.workers = 1`",
            )


def _limits(settings: Settings) -> Iterator[tuple[KeyPath, LimitSettings]]:
    for name in ("doors", "models", "aliases", "catalog"):
        for index, one in enumerate(getattr(settings, name) or ()):
            yield (name, index, "limits"), one.limits
