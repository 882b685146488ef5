"""A page of the console as a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from causerie.console.request_context import RequestContext

Page = Callable[[RequestContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page. An ``open`` one needs nobody to have signed in; one that is ``raw`` reads its
    request's body itself, takes the form token in a header, and has failures as JSON.

    Fields typed into one that is ``kept`` come back if the session has ended in between. It asks
    :meth:`RequestContext.check_form` before it changes anything, and takes nothing that is secret.
    """

    method: str
    path: str
    page: Page
    open: bool = False
    raw: bool = False
    kept: bool = False
