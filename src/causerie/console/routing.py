"""Finds the page for a path; ``{name}`` in a pattern takes one part of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from causerie.console.request_context import RequestContext
from causerie.edge.errors import method_not_allowed
from causerie.errors import NotFound

Page = Callable[[RequestContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page. An ``open`` one needs nobody to have signed in; one that is ``raw`` reads its
    request's body itself, takes the form token in a header, and has failures as JSON.

    Fields typed into one that is ``kept`` come back if the session has ended in between. It asks
    :meth:`RequestContext.check_form` before it changes anything, and takes nothing that is secret.
    """

    method: str
    pattern: str
    page: Page
    open: bool = False
    raw: bool = False
    kept: bool = False


class RouteTable:
    """All pages."""

    def __init__(self, routes: Iterable[PageRoute]) -> None:
        self.routes = tuple(routes)
        self._by_pattern: dict[tuple[str, ...], dict[str, PageRoute]] = {}
        for route in self.routes:
            parts = tuple(route.pattern.split("/"))
            self._by_pattern.setdefault(parts, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[PageRoute, Mapping[str, str]]:
        """The page and the named parts of its path; raises :class:`NotFound`, and
        ``InvalidRequest`` (405) for another method."""
        parts = tuple(path.split("/"))
        exact = self._by_pattern.get(parts)
        found = (exact, {}) if exact is not None else self._matching(parts)
        if found is None:
            raise NotFound("There is no such page.")
        methods, params = found
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            raise method_not_allowed(method, methods)
        return route, params

    def _matching(
        self, parts: tuple[str, ...]
    ) -> tuple[dict[str, PageRoute], dict[str, str]] | None:
        for pattern, methods in self._by_pattern.items():
            if len(pattern) == len(parts) and (params := _params(pattern, parts)) is not None:
                return methods, params
        return None


def _params(pattern: tuple[str, ...], parts: tuple[str, ...]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            if not part or not part.isprintable():
                return None
            params[expected[1:-1]] = part
        elif expected != part:
            return None
    return params
