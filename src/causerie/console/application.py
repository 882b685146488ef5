"""The whole console: every request below ``/console`` in, every page out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.parse import quote

from causerie.accounts.accounts import Accounts
from causerie.accounts.names import new_token
from causerie.accounts.sessions import form_token_fits
from causerie.console.cookies import token_in
from causerie.console.fields import Fields
from causerie.console.navigation import ENTRIES
from causerie.console.origin import Site
from causerie.console.ports import House
from causerie.console.routes import routes
from causerie.console.routing import Route, RouteTable
from causerie.console.security import HEADERS
from causerie.console.statics import Statics
from causerie.console.templating import environment
from causerie.console.visit import PREFIX, Desk, Visit
from causerie.edge.body import BodyLimits, read_body
from causerie.edge.exchange import Exchange
from causerie.errors import (
    Forbidden,
    InvalidRequest,
    ServiceError,
    StoreUnavailable,
    Unauthenticated,
)
from causerie.identity.provider import OidcProvider
from causerie.mail import Outbox

_STATIC = f"{PREFIX}/static"
_SAFE = ("GET", "HEAD")
_UNAUTHORIZED = 401
_FORM = "application/x-www-form-urlencoded"
_FORM_LIMITS = BodyLimits(max_bytes=256 * 1024, seconds=30.0)


@dataclass(frozen=True, slots=True)
class SignUp:
    """People may ask for accounts without an invitation, and get their link by mail if there is."""

    outbox: Outbox | None = None


def _now() -> datetime:
    return datetime.now(UTC)


class Console:
    """Answers what is asked below :data:`~causerie.console.visit.PREFIX`."""

    def __init__(
        self,
        accounts: Accounts,
        house: House,
        site: Site | None = None,
        *,
        clock: Callable[[], datetime] = _now,
        sign_up: SignUp | None = None,
        providers: Callable[[], Sequence[OidcProvider]] = tuple,
    ) -> None:
        """``providers`` are those that people may sign in with now."""
        self._statics = Statics(_STATIC)
        self._routes = RouteTable(routes(house, open_to_all=sign_up is not None))
        patterns = {route.pattern for route in self._routes.routes}
        self._desk = Desk(
            accounts,
            environment(self._statics),
            site or Site(),
            HEADERS,
            clock,
            tuple(each for each in ENTRIES if each.pattern in patterns),
            sign_up is not None,
            providers,
            lambda: house.market() is not None,
            sign_up.outbox if sign_up is not None else None,
        )

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; raises :class:`ServiceError` where a script wants it as JSON."""
        if exchange.path.startswith(f"{_STATIC}/") and exchange.method in _SAFE:
            self._statics.answer(exchange, dict(HEADERS))
            return
        visit = self._arrive(exchange)
        try:
            path = exchange.path.removeprefix(PREFIX) or "/"
            route, visit.params = self._routes.find(exchange.method, path)
            if route.raw:
                await self._serve(visit, route)
                return
        except ServiceError as failure:
            if _wants_json(exchange):
                raise
            await self._recognise(visit)
            await self._refuse(visit, failure)
            return
        try:
            await self._serve(visit, route)
        except ServiceError as failure:
            if exchange.status is not None:  # too late for a page: the file breaks off
                raise
            await self._refuse(visit, failure)

    def refuse(self, exchange: Exchange, failure: ServiceError) -> None:
        """Say what no page could: to scripts as JSON, to people as a page without a frame."""
        if _wants_json(exchange):
            exchange.refuse(failure)
        else:
            phrase = HTTPStatus(failure.status).phrase
            self._visit(exchange).show_bare("failure.html", failure, phrase=phrase)

    def _visit(self, exchange: Exchange) -> Visit:
        secure = self._desk.site.secure(exchange)
        return Visit(exchange, self._desk, token_in(exchange.headers, secure=secure))

    def _arrive(self, exchange: Exchange) -> Visit:
        """A visit; who has no token yet gets one, which forms are bound to."""
        visit = self._visit(exchange)
        if not visit.token:
            visit.keep(new_token(), None)
        return visit

    async def _serve(self, visit: Visit, route: Route) -> None:
        exchange = visit.exchange
        visit.query = Fields.parse(exchange.query)
        if exchange.method not in _SAFE:
            self._desk.site.check(exchange)
            if not route.raw:
                visit.form = await _form(exchange)
            visit.fits = form_token_fits(visit.token, _given_token(visit))
            if not visit.fits and not route.kept:
                raise Forbidden(
                    "This page is older than your session, so nothing was changed. "
                    "Open it anew and try again.",
                    code="stale_form",
                )
        try:
            visit.user, visit.session = await self._desk.accounts.sign_in.whose(visit.token)
        except Unauthenticated:
            if route.kept:
                await visit.show("kept.html", status=_UNAUTHORIZED, fields=visit.form)
                return
            if not route.open:
                raise
        await route.page(visit)

    async def _recognise(self, visit: Visit) -> None:
        """Who has signed in sees the frame also around a page that there is not."""
        try:
            visit.user, visit.session = await self._desk.accounts.sign_in.whose(visit.token)
        except (Unauthenticated, StoreUnavailable):
            visit.user = None

    async def _refuse(self, visit: Visit, failure: ServiceError) -> None:
        """A page that says what went wrong; to sign in, where that is what is missing."""
        if failure.code == "session_ended" and visit.user is None:
            lost = "" if visit.exchange.method in _SAFE else "done=nothing-changed&"
            visit.go(f"/sign-in?{lost}next={quote(_page_of(visit))}")
            return
        if isinstance(failure, StoreUnavailable):
            visit.user = None  # the frame around a page needs the database
        phrase = HTTPStatus(failure.status).phrase
        await visit.show_problem("failure.html", failure, phrase=phrase)


def _page_of(visit: Visit) -> str:
    """Where somebody is: scripts fetch parts of a page that stands at an address of its own."""
    exchange = visit.exchange
    if visit.by_script:
        _, _, rest = exchange.headers.get("hx-current-url", "").partition(f"{PREFIX}/")
        return f"{PREFIX}/{rest.partition('#')[0]}"
    if exchange.method not in _SAFE:
        return f"{PREFIX}/"
    return f"{exchange.path}?{exchange.query}" if exchange.query else exchange.path


def _wants_json(exchange: Exchange) -> bool:
    return exchange.headers.get("content-type", "").startswith("application/json")


async def _form(exchange: Exchange) -> Fields:
    """The fields of a form; raises :class:`InvalidRequest`."""
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await read_body(exchange, _FORM_LIMITS)
    if kind != _FORM and body:
        raise InvalidRequest(
            f"A form is sent as {_FORM}.", code="unsupported_media_type", status=415
        )
    return Fields.parse(body.decode("utf-8", "replace"))


def _given_token(visit: Visit) -> str:
    return visit.exchange.headers.get("x-form-token", "") or visit.form.raw("form_token")
