"""Routes by method and path. ``{name}`` in the path of a route takes one segment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from causerie.edge.errors import method_not_allowed

_PARAMETER = re.compile(r"\\{(\w+)\\}")  # in an escaped path


class Route(Protocol):
    """A declaration that is found by method and path."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...


R = TypeVar("R", bound=Route)


class RouteTable(Generic[R]):
    """The routes of one application. ``fits`` tells whether a segment may be a parameter."""

    def __init__(self, routes: Iterable[R], fits: Callable[[str], object]) -> None:
        self.routes = tuple(routes)
        self._fits = fits
        self._by_path: dict[re.Pattern[str], dict[str, R]] = {}
        for route in sorted(self.routes, key=lambda route: "{" in route.path):
            path = re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", re.escape(route.path)))
            self._by_path.setdefault(path, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[R, dict[str, str]] | None:
        """Return the route and its path parameters, or ``None`` if no route has this path.

        A path without parameters takes precedence, then the order of declaration. ``GET``
        serves ``HEAD``. Raises :class:`InvalidRequest` (405) for any other method.
        """
        for pattern, methods in self._by_path.items():
            match = pattern.fullmatch(path)
            if match is not None and all(map(self._fits, match.groups())):
                route = methods.get("GET" if method == "HEAD" else method)
                if route is None:
                    raise method_not_allowed(method, methods)
                return route, match.groupdict()
        return None
