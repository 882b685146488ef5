"""Table of paths and their handlers; nothing else.

Paths of the service are at the root; those of the interface are below the base URL of every door.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from causerie.edge.doors import MountedDoor
from causerie.edge.errors import method_not_allowed, unknown_path
from causerie.edge.exchange import Exchange
from causerie.edge.health import HealthHandlers
from causerie.edge.metrics import MetricsPage
from causerie.edge.openai import OpenAI
from causerie.edge.openapi import Documents
from causerie.edge.router import RouterPages

Handler = Callable[[Exchange], Awaitable[None]]
DoorHandler = Callable[[Exchange, MountedDoor, str], Awaitable[None]]


METRICS = "/metrics"


def service_routes(
    health: HealthHandlers, metrics: MetricsPage | None, documents: Documents | None
) -> Mapping[str, Handler]:
    """Paths of the service itself; all are read with GET."""
    routes: dict[str, Handler] = {
        "/health": health.overview,
        "/health/live": health.live,
        "/health/ready": health.ready,
    }
    if metrics is not None:
        routes[METRICS] = metrics.show
    if documents is not None:
        routes["/openapi.json"] = documents.openapi
    return routes


def door_routes(openai: OpenAI) -> Mapping[str, Mapping[str, DoorHandler]]:
    """Paths below a base URL, by method. ``{id}`` takes the rest of the path."""
    return {
        "/models": {"GET": openai.list_models},
        "/models/{id}": {"GET": openai.show_model},
        "/chat/completions": {"POST": openai.complete},
    }


def router_routes(openai: OpenAI, pages: RouterPages) -> Mapping[str, Mapping[str, DoorHandler]]:
    """Paths below the base URL of a router."""
    return {
        "/models": {"GET": pages.list_models},
        "/models/user": {"GET": pages.list_mine},
        "/models/count": {"GET": pages.count},
        "/models/{id}": {"GET": pages.show},
        "/model/{id}": {"GET": pages.show_wrapped},
        "/key": {"GET": pages.key},
        "/credits": {"GET": pages.credits},
        "/generation": {"GET": pages.generation},
        "/chat/completions": {"POST": openai.complete},
    }


def pick(
    routes: Mapping[str, Mapping[str, DoorHandler]], method: str, base: str, path: str
) -> tuple[DoorHandler, str]:
    """The handler for a path below a door's ``base``, and what ``{id}`` stands for."""
    if (exact := routes.get(path)) is not None and method in exact:
        return exact[method], ""
    for pattern, handlers in routes.items():
        fixed, parameter, _ = pattern.partition("{id}")
        rest = path.removeprefix(fixed)
        if path != pattern and not (parameter and path.startswith(fixed) and rest):
            continue
        wanted = "GET" if method == "HEAD" else method
        if wanted not in handlers:
            raise method_not_allowed(method, handlers)
        return handlers[wanted], rest
    raise unknown_path(base, path, routes)
