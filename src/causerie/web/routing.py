"""Routes by method and path. ``{name}`` in the path of a route takes one segment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from causerie.edge.errors import method_not_allowed


class Route(Protocol):
    """A declaration that is found by method and path."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Route)


class RouteTable(Generic[R]):
    """The routes of one application. ``fits`` tells whether a segment may be a parameter."""

    def __init__(self, routes: Iterable[R], fits: Callable[[str], bool]) -> None:
        self.routes = tuple(routes)
        self._fits = fits
        self._by_path: dict[tuple[str, ...], dict[str, R]] = {}
        for route in self.routes:
            self._by_path.setdefault(tuple(route.path.split("/")), {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[R, dict[str, str]] | None:
        """Return the route and its path parameters, or ``None`` if no route has this path.

        A path without parameters takes precedence, then the order of declaration. ``GET``
        serves ``HEAD``. Raises :class:`InvalidRequest` (405) for any other method.
        """
        segments = tuple(path.split("/"))
        literal = None if "{" in path else self._by_path.get(segments)
        found = (literal, {}) if literal is not None else self._matching(segments)
        if found is None:
            return None
        methods, params = found
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise method_not_allowed(method, methods)
        return route, params

    def _matching(self, segments: tuple[str, ...]) -> tuple[dict[str, R], dict[str, str]] | None:
        for pattern, methods in self._by_path.items():
            if len(pattern) == len(segments):
                params = self._params(pattern, segments)
                if params is not None:
                    return methods, params
        return None

    def _params(self, pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
        params: dict[str, str] = {}
        for expected, segment in zip(pattern, segments, strict=True):
            if expected.startswith("{"):
                if not segment or not self._fits(segment):
                    return None
                params[expected[1:-1]] = segment
            elif expected != segment:
                return None
        return params
