"""The console as one application, which answers every request below ``/console``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from urllib.parse import quote

from causerie.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    ServiceError,
    StoreUnavailable,
    Unauthenticated,
)
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.people import User
from causerie.hosted.accounts.tokens import Session, form_token_fits, new_token
from causerie.hosted.console.catalog_view import ProviderBoard, path_of_model, path_of_provider
from causerie.hosted.console.entries import lowest_price
from causerie.hosted.console.fields import PERIOD_LENGTHS, FormFields
from causerie.hosted.console.public_chat import PublicChat
from causerie.hosted.console.request_context import (
    PREFIX,
    ConsoleServices,
    OpenPages,
    RequestContext,
    Site,
    token_in,
)
from causerie.hosted.console.routes import ROUTES, SIGN_UP_ROUTES, PageRoute
from causerie.hosted.console.service_view import STATE_WORDS, ServiceView, folded
from causerie.hosted.console.words import CHOICES
from causerie.hosted.identity.provider import OidcProvider
from causerie.http.exchange import BodyLimits, Exchange, read_body
from causerie.http.pages.assets import Statics
from causerie.http.pages.branding import logo_addresses
from causerie.http.pages.templating import environment
from causerie.http.routing import RouteTable

_STATIC = f"{PREFIX}/static"
_SAFE = ("GET", "HEAD")
_FORM = "application/x-www-form-urlencoded"
_FORM_LIMITS = BodyLimits(max_bytes=256 * 1024, seconds=30.0)


class ConsoleApplication:
    """Answers requests below :data:`~causerie.hosted.console.request_context.PREFIX`."""

    def __init__(
        self,
        accounts: Accounts,
        service_view: ServiceView,
        site: Site,
        *,
        clock: Callable[[], datetime],
        open_to: OpenPages,
        providers: Callable[[], Sequence[OidcProvider]],
    ) -> None:
        """Create the console; ``providers`` returns the identity providers to sign in with now."""
        self._static_files = Statics(_STATIC, site.brand.style())
        pages = (*SIGN_UP_ROUTES, *ROUTES) if open_to.sign_up else ROUTES
        self._routes = RouteTable(pages, str.isprintable)
        logos = logo_addresses(f"{PREFIX}/logos", site.logos)
        templates = environment(self._static_files, site.brand, logos)
        templates.globals |= {"lowest_price": lowest_price, "folded": folded}
        templates.globals |= {"path_of_model": path_of_model, "path_of_provider": path_of_provider}
        templates.globals |= {"choices": CHOICES, "state_words": STATE_WORDS}
        templates.globals |= {"period_lengths": PERIOD_LENGTHS}
        chat = PublicChat(open_to.chat, clock, open_to.shared)
        board = ProviderBoard(clock)
        self._services = ConsoleServices(
            accounts, service_view, templates, site, clock, chat, open_to, providers, board
        )

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request; show a failure, but raise it if JSON was sent or the reply began."""
        if exchange.path.startswith(f"{_STATIC}/") and exchange.method in _SAFE:
            await self._static_files.answer(exchange)
            return
        context = self._build_context_without_user(exchange)
        if not context.token:
            context.keep(new_token(), None)
            context.token_is_new = True
        try:
            found = self._routes.find(exchange.method, exchange.path.removeprefix(PREFIX) or "/")
            if found is None:
                raise NotFound("There is no such page.")
            route, context.params = found
            await self._serve_page(context, route)
        except ServiceError as failure:
            # Once an answer has begun it is too late for a page: the file breaks off.
            if exchange.status is not None or _has_json_content_type(exchange):
                raise
            await self._show_error_or_sign_in(context, failure)

    def refuse(self, exchange: Exchange, failure: ServiceError) -> None:
        """Answer with an error: as JSON if JSON was sent, else as a page that needs no database."""
        if _has_json_content_type(exchange):
            exchange.refuse(failure)
        else:
            context = self._build_context_without_user(exchange)
            context.problem = failure
            context.send_bare_page("failure.html", phrase=HTTPStatus(failure.status).phrase)

    def _build_context_without_user(self, exchange: Exchange) -> RequestContext:
        secure = self._services.site.secure(exchange)
        return RequestContext(exchange, self._services, token_in(exchange.headers, secure=secure))

    async def _serve_page(self, context: RequestContext, route: PageRoute) -> None:
        context.query = FormFields.parse(context.exchange.head.query)
        fits = await self._read_form_and_compare_token(context, route)
        try:
            context.user, context.session = await self._require_user_and_session(context)
        except Unauthenticated as failure:
            if route.kept:
                context.problem = failure
                await context.send_page("kept.html", fields=context.form)
                return
            if not route.open:
                raise
        if await self._must_enrol_second_factor(context, route):
            context.go("/profile", done="factor-required")
            return
        if "project" in context.params:
            await context.see_project(context.params["project"])
        try:
            if not fits:
                raise InvalidRequest(
                    "You have signed in since this was typed, so nothing was changed yet. "
                    "Look it through, and send it again.",
                    code="stale_form",
                    status=403,
                )
            await route.page(context)
        except ServiceError as failure:
            if route.form is None:
                raise
            context.problem = failure
            await route.form(context)

    async def _read_form_and_compare_token(self, context: RequestContext, route: PageRoute) -> bool:
        # Returns whether the form has a token of whoever is signed in; unless ``kept``, it must.
        exchange = context.exchange
        if exchange.method in _SAFE:
            return True
        self._services.site.check(exchange)
        if not route.raw:
            context.form = await _read_form_fields(exchange)
        header = exchange.headers.get("x-form-token", "")
        fits = form_token_fits(context.token, header or context.form.raw("form_token"))
        if not fits and not route.kept:
            raise Forbidden(
                "This page is older than your session, so nothing was changed. "
                "Open it anew and try again.",
                code="stale_form",
            )
        return fits

    async def _must_enrol_second_factor(self, context: RequestContext, route: PageRoute) -> bool:
        session = None if route.open or route.enrols else context.session
        if session is None:
            return False
        return await context.accounts.sign_in.must_enrol(context.me, session)

    async def _require_user_and_session(self, context: RequestContext) -> tuple[User, Session]:
        known = None if context.token_is_new else context.token
        return await self._services.accounts.sign_in.whose(known)

    async def _show_error_or_sign_in(self, context: RequestContext, failure: ServiceError) -> None:
        if failure.code == "session_ended" and context.user is None:
            lost = "" if context.exchange.method in _SAFE else "done=nothing-changed&"
            issuer, place = failure.metadata.get("issuer") if not lost else None, "/sign-in"
            for each in self._services.providers():
                if each.options.issuer == issuer:
                    place = f"/sign-in/{each.options.name}"
                    break
            context.go(f"{place}?{lost}next={quote(_choose_path_after_login(context))}")
            return
        if failure.code == "scope_not_allowed" and context.exchange.method in _SAFE:
            operators = context.exchange.path.startswith(f"{PREFIX}/operator")
            of_whom = "operators of the service" if operators else "other roles in the project"
            words = f"This page is for {of_whom}. You have signed in without that right."
            failure = Forbidden(words, code=failure.code)
        context.problem = failure
        if isinstance(failure, StoreUnavailable):
            context.user = None  # the frame around a page needs the database
        elif context.user is None:
            # Whoever has signed in sees the frame also around a page that there is not.
            with suppress(Unauthenticated, StoreUnavailable):
                context.user, context.session = await self._require_user_and_session(context)
        await context.send_page("failure.html", phrase=HTTPStatus(failure.status).phrase)


def _choose_path_after_login(context: RequestContext) -> str:
    exchange = context.exchange
    if context.by_script:
        _, _, rest = exchange.headers.get("hx-current-url", "").partition(f"{PREFIX}/")
        return f"{PREFIX}/{rest.partition('#')[0]}"
    if exchange.method not in _SAFE:
        return f"{PREFIX}/"
    return f"{exchange.path}?{exchange.head.query}" if exchange.head.query else exchange.path


def _has_json_content_type(exchange: Exchange) -> bool:
    return exchange.headers.get("content-type", "").startswith("application/json")


async def _read_form_fields(exchange: Exchange) -> FormFields:
    kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await read_body(exchange, _FORM_LIMITS)
    if kind != _FORM and body:
        raise InvalidRequest(
            f"A form is sent as {_FORM}.", code="unsupported_media_type", status=415
        )
    return FormFields.parse(body.decode("utf-8", "replace"))
