"""Tables of routes with path parameters, and the paths of the service and of its doors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Generic, Protocol, TypeVar

from causerie.errors import InvalidRequest, NotFound
from causerie.http.api import CompletionHandlers, RouterPages
from causerie.http.doors import MountedDoor
from causerie.http.exchange import Exchange
from causerie.http.health import HealthHandlers, MetricsPage
from causerie.http.openapi import Documents
from causerie.shapes.table import SHAPES

_OPERATIONS = (
    *("/chat/completions", "/responses", "/messages", "/models"),
    *("/embeddings", "/rerank", "/completions"),
)
_PATH_PARAMETER = re.compile(r"\\{(\w+)\\}")  # in an escaped path


def method_not_allowed(method: str, allowed: Iterable[str]) -> InvalidRequest:
    methods = set(allowed)
    if "GET" in methods:
        methods.add("HEAD")
    names = ", ".join(sorted(methods))
    return InvalidRequest(
        f"The method {method[:32]} is not allowed here; use {names}.",
        code="method_not_allowed",
        status=405,
        headers={"Allow": names},
    )


class Route(Protocol):
    """A route; ``{name}`` in its path matches one segment."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Route)


class RouteTable(Generic[R]):
    """Routes of one application; ``fits`` returns whether a segment may be a parameter."""

    def __init__(self, routes: Iterable[R], fits: Callable[[str], object]) -> None:
        self.routes = tuple(routes)
        self._accepts_segment = fits
        self._routes_by_path_pattern: dict[re.Pattern[str], dict[str, R]] = {}
        for route in sorted(self.routes, key=lambda route: "{" in route.path):
            path = re.compile(_PATH_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(route.path)))
            self._routes_by_path_pattern.setdefault(path, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[R, dict[str, str]] | None:
        """Return the route and its path parameters, or ``None`` if no route has this path.

        A path without parameters takes precedence, then the order of declaration. ``GET``
        serves ``HEAD``. Raises :class:`InvalidRequest` (405) for any other method.
        """
        for pattern, methods in self._routes_by_path_pattern.items():
            match = pattern.fullmatch(path)
            if match is not None and all(map(self._accepts_segment, match.groups())):
                route = methods.get("GET" if method == "HEAD" else method)
                if route is None:
                    raise method_not_allowed(method, methods)
                return route, match.groupdict()
        return None


Handler = Callable[[Exchange], Awaitable[None]]
DoorHandler = Callable[[Exchange, MountedDoor, str], Awaitable[None]]


METRICS_PATH = "/metrics"


def service_routes(
    health: HealthHandlers, metrics: MetricsPage | None, documents: Documents | None
) -> Mapping[str, Handler]:
    routes: dict[str, Handler] = {
        "/health": health.overview,
        "/health/live": health.live,
        "/health/ready": health.ready,
    }
    if metrics is not None:
        routes[METRICS_PATH] = metrics.show
    if documents is not None:
        routes["/openapi.json"] = documents.openapi
    return routes


DoorRoutes = Mapping[str, Mapping[str, DoorHandler]]
"""Handlers by path below a door's base and by method; ``{id}`` matches the rest."""


def completion_routes(handlers: CompletionHandlers) -> DoorRoutes:
    answers = {shape.path: {"POST": partial(handlers.complete, shape)} for shape in SHAPES}
    counted = [shape for shape in SHAPES if shape.count_body is not None]
    return answers | {one.counting: {"POST": partial(handlers.count, one)} for one in counted}


def door_routes(handlers: CompletionHandlers) -> DoorRoutes:
    return {
        "/models": {"GET": handlers.list_models},
        "/models/{id}": {"GET": handlers.show_model},
        **completion_routes(handlers),
    }


def router_routes(handlers: CompletionHandlers, pages: RouterPages) -> DoorRoutes:
    return {
        "/models": {"GET": pages.list_models},
        "/models/user": {"GET": pages.list_mine},
        "/models/count": {"GET": pages.count},
        "/embeddings/models": {"GET": pages.list_embeddings},
        "/models/{id}": {"GET": pages.show},
        "/model/{id}": {"GET": pages.show_wrapped},
        "/key": {"GET": pages.key},
        "/credits": {"GET": pages.credits},
        "/generation": {"GET": pages.generation},
        **completion_routes(handlers),
    }


def find_handler(routes: DoorRoutes, method: str, base: str, path: str) -> tuple[DoorHandler, str]:
    """Return the handler for a path below a door's ``base``, and the value of ``{id}``."""
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
    path = path[:200]
    plain = re.sub("/+", "/", path).rstrip("/").lower()
    meant = next((each for each in _OPERATIONS if plain.endswith(each)), None)
    advice = ""
    if meant is not None:
        advice = f" Did you mean {base}{meant}? The client's base URL ends with {base}."
    below = f"below {base} there are {', '.join(routes)}."
    raise NotFound(f"There is nothing at {base}{path}; {below}{advice}")
