"""Routes with path parameters: each is found by its own path, whatever a client sends besides."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from consolekit import Place
from hypothesis import given
from hypothesis import strategies as st

from causerie.errors import InvalidRequest
from causerie.hosted.console import routes
from causerie.hosted.management import application
from causerie.hosted.management.routing import ID_PATTERN
from causerie.http.routing import RouteTable


@dataclass(frozen=True)
class Declared:
    method: str
    path: str


ROUTES = (
    Declared("GET", "/"),
    Declared("GET", "/keys"),
    Declared("POST", "/keys"),
    Declared("GET", "/keys/{key}"),
    Declared("GET", "/keys/new"),
    Declared("DELETE", "/keys/{key}"),
    Declared("GET", "/{kind}/{id}"),
    Declared("GET", "/keys/{key}/rotate"),
)
TABLE = RouteTable(ROUTES, str.isalnum)
SEGMENTS = st.sampled_from(["", "keys", "new", "rotate", "a", "-", "{key}", "{kind}", "{id}"])


def fits(route: Declared, segments: list[str]) -> bool:
    """The same rule, written as slowly as it can be read."""
    own = route.path.split("/")
    return len(own) == len(segments) and all(
        each.isalnum() if part.startswith("{") else part == each
        for part, each in zip(own, segments, strict=True)
    )


@given(st.sampled_from(["GET", "HEAD", "POST", "DELETE"]), st.lists(SEGMENTS, max_size=4))
def test_a_route_is_found_by_its_path(method: str, segments: list[str]) -> None:
    segments = ["", *segments]
    path = "/".join(segments)
    fitting = [route for route in ROUTES if fits(route, segments)]
    fitting.sort(key=lambda route: "{" in route.path)  # a literal one first; else the first one
    fitting = [route for route in fitting if route.path == fitting[0].path]
    wanted = "GET" if method == "HEAD" else method
    if not fitting:
        assert TABLE.find(method, path) is None
    elif wanted not in {route.method for route in fitting}:
        with pytest.raises(InvalidRequest) as refused:
            TABLE.find(method, path)
        assert refused.value.status == 405
        assert {route.method for route in fitting} <= set(
            refused.value.headers["Allow"].split(", ")
        )
    else:
        found = TABLE.find(method, path)
        assert found is not None
        route, params = found
        assert (route.method, route.path) == (wanted, fitting[0].path)
        assert route.path.format(**params) == path


async def test_the_pattern_of_a_page_is_no_page(place: Place) -> None:
    """A path that is written like the declaration names nothing; it is not an internal error."""
    visitor = await place.visitor_of(await place.world.person())
    for path in ("/projects/{project}", "/projects/{project}/keys/{key}", "/sign-in/{provider}"):
        page = await visitor.ask("GET", path)
        assert page.status == 404, path


def test_no_route_hides_another() -> None:
    """Each page and each operation is found where it is declared."""
    pages = (*routes.SIGN_UP_ROUTES, *routes.ROUTES)
    for table in (
        RouteTable(pages, str.isprintable),
        RouteTable(application.ROUTES, re.compile(ID_PATTERN).fullmatch),
    ):
        for route in table.routes:
            found = table.find(route.method, re.sub(r"\{\w+\}", "x1", route.path))
            assert found is not None
            assert found[0] is route
            assert set(found[1]) == set(re.findall(r"\{(\w+)\}", route.path))
