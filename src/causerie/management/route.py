"""Declaration of one operation of the API: its path, its input and its output.

The same declaration answers requests and is the documentation, so the two cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from msgspec import Struct

from causerie.accounts.people import Actor
from causerie.web.exports import Export

ID_PATTERN = "^[A-Za-z0-9_-]{1,64}$"


Q = TypeVar("Q", bound=Struct)
B = TypeVar("B", bound=Struct)
A = TypeVar("A", bound=Struct | Export | None)


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[Q, B]):
    """One request: who calls, what the path names, what the query and the body say."""

    actor: Actor
    ids: Mapping[str, str]
    query: Q
    body: B


@dataclass(frozen=True, slots=True)
class ApiRoute(Generic[Q, B, A]):
    """One operation."""

    method: str
    path: str
    status: int
    summary: str
    handler: Callable[[ApiCall[Q, B]], Awaitable[A]]
    query: type[Q]
    body: type[B]
    answer: type[A]

    @property
    def name(self) -> str:
        """A name for programs that are made from the documentation."""
        words = re.findall(r"[a-z]+", self.path)
        return "_".join([self.method.lower(), *words])

    @property
    def parameters(self) -> Sequence[str]:
        """Return the names of the path's parameters, in order."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def takes_body(self) -> bool:
        return self.method in ("POST", "PUT", "PATCH")


AnyRoute = ApiRoute[Any, Any, Any]


def route(
    place: str, summary: str, handler: Callable[[ApiCall[Q, B]], Awaitable[A]]
) -> ApiRoute[Q, B, A]:
    """An operation; ``place`` is ``METHOD PATH``, and 201 behind it where something is made.

    Query, body and answer are those that the annotations of the handler name.
    """
    hints = get_type_hints(handler)
    (query, body), answer = get_args(hints["call"]), hints["return"]
    method, path, *made = place.split()
    status = int(made[0]) if made else 204 if answer is NoneType else 200
    return ApiRoute(method, path, status, summary, handler, query, body, answer)
