"""One request of a page: who comes and from where, what they sent, and the ways to answer."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from causerie.access.allowed import AccessRule
from causerie.access.networks import Network
from causerie.access.shared_budgets import SharedBudgetStore
from causerie.catalog.page_cache import CachedPage
from causerie.errors import Forbidden, ServiceError, Unauthenticated
from causerie.hosted.accounts.accounts import Accounts
from causerie.hosted.accounts.authorization import forbidden
from causerie.hosted.accounts.keys import OneTimeLink
from causerie.hosted.accounts.people import (
    Action,
    Actor,
    Extent,
    Membership,
    PersonStatus,
    Project,
    User,
    actor_of,
    columns,
    extent,
)
from causerie.hosted.accounts.projects import ProjectOverview
from causerie.hosted.accounts.tokens import Session, SessionClient, form_token
from causerie.hosted.console.catalog_view import ProviderBoard
from causerie.hosted.console.fields import FormFields
from causerie.hosted.console.navigation import NOTICES, sections
from causerie.hosted.console.public_chat import PublicChat, PublicChatOptions
from causerie.hosted.console.service_view import ServiceView
from causerie.hosted.identity.provider import OidcProvider
from causerie.hosted.operations.configuring import Configuring
from causerie.hosted.operations.ports import Operations
from causerie.hosted.payments.stripe import Sales
from causerie.http.answers import Export, send_cached, send_compressed
from causerie.http.event_loop import Turns
from causerie.http.exchange import Exchange
from causerie.http.head import Headers
from causerie.http.pages.assets import PAGE_HEADERS, asked_by_person
from causerie.http.pages.branding import Branding, Logo
from causerie.http.pages.templating import Templates
from causerie.observe.mail import Outbox

_NAME = "causerie"
_TOKEN = re.compile(r"[A-Za-z0-9]{43}", re.ASCII)


def token_in(headers: Headers, *, secure: bool) -> str:
    """Return the well-formed token in the browser's cookie; empty without one."""
    sent = _read_cookie_values(headers, _choose_cookie_name(secure))
    return next(filter(_TOKEN.fullmatch, sent), "")


def _read_cookie_values(headers: Headers, cookie_name: str) -> Iterator[str]:
    for header in headers.every("cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == cookie_name:
                yield value


# Another host of the same domain cannot set a cookie with the prefix ``__Host-`` (RFC 6265bis,
# section 4.1.3).
def _choose_cookie_name(is_secure: bool) -> str:
    return f"__Host-{_NAME}" if is_secure else _NAME


class Site(Struct, frozen=True):
    """The site's addresses and look.

    ``address`` is its public one, if known; else the ``Host`` header says. ``proxies`` are trusted.
    """

    address: str = ""
    proxies: tuple[Network, ...] = ()
    brand: Branding = Branding()
    logos: Mapping[str, Logo] = {}
    """By the names of authors and providers."""
    docs: bool = True
    """There is a reference of the API at ``/docs``."""

    def secure(self, exchange: Exchange) -> bool:
        if self.address:
            return self.address.startswith("https:")
        return exchange.headers.get("x-forwarded-proto", "").lower() == "https"

    def base(self, exchange: Exchange) -> str:
        if self.address:
            return self.address.rstrip("/")
        scheme = "https" if self.secure(exchange) else "http"
        return f"{scheme}://{exchange.headers.get('host', '')}"

    # Browsers send ``Origin`` with every form that changes something, and pages cannot forge it.
    def check(self, exchange: Exchange) -> None:
        """Raise :class:`Forbidden` if a page of another site sent the form."""
        origin = exchange.headers.get("origin", "").lower()
        fetched = exchange.headers.get("sec-fetch-site", "") or "same-origin"
        own = {self.base(exchange).lower()}
        if not self.address:
            own.add(f"https://{exchange.headers.get('host', '')}".lower())  # https ends before us
        if origin not in own or fetched != "same-origin":
            raise Forbidden(
                "This form was not sent by a page of this site, so nothing was changed. "
                "Open the page anew and try again.",
                code="foreign_origin",
            )


PREFIX = "/console"
_HTML = "text/html; charset=utf-8"
_GZIP_LEVEL = 5
_OF_IMAGES = {
    "cache-control": "public, max-age=86400",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",  # an SVG's
}


class OpenPages(Struct, frozen=True):
    """Rights of strangers in addition to reading the catalog."""

    sign_up: bool = False
    """People may ask for accounts without an invitation."""
    outbox: Outbox | None = None
    """Sends letters with links, if the service has a public address."""
    rankings: bool = False
    sales: Sales = Sales()
    chat: PublicChatOptions = PublicChatOptions()
    shared: SharedBudgetStore | None = None
    """Where replicas count the messages of visitors together."""
    status: bool = False
    reminders: bool = False
    """People get reminders by e-mail, and choose which."""
    apps: frozenset[str] = frozenset()
    """Apps that rankings may name to strangers."""


class ConsoleServices(Struct, frozen=True):
    """Services that all requests share."""

    accounts: Accounts
    service_view: ServiceView
    templates: Templates
    site: Site
    clock: Callable[[], datetime]
    public_chat: PublicChat
    open_to: OpenPages
    providers: Callable[[], Sequence[OidcProvider]]
    board: ProviderBoard

    @property
    def has_catalog(self) -> bool:
        return self.service_view.market() is not None


@dataclass(slots=True)
class RequestContext:
    """A request. ``token`` is that of the cookie; ``params`` are the parts of the path.

    ``problem`` is what was wrong with it: the page that is sent says so, and has its status.
    """

    exchange: Exchange
    services: ConsoleServices
    token: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: FormFields = field(default_factory=FormFields)
    form: FormFields = field(default_factory=FormFields)
    user: User | None = None
    session: Session | None = None
    view: ProjectOverview | None = None
    problem: ServiceError | None = None
    token_is_new: bool = False  # made for this answer, so nobody has signed in with it
    _added_headers: dict[str, str] = field(default_factory=dict)
    _cached_memberships: Sequence[tuple[Project, Membership]] | None = None

    @property
    def me(self) -> User:
        if self.user is None:
            raise Unauthenticated("Sign in first.", code="session_ended")
        return self.user

    @property
    def actor(self) -> Actor:
        return actor_of(self.me)

    @property
    def accounts(self) -> Accounts:
        return self.services.accounts

    @property
    def service_view(self) -> ServiceView:
        return self.services.service_view

    @property
    def operations(self) -> Operations:
        return self.services.service_view.operations

    @property
    def configuration(self) -> Configuring:
        return self.operations.configuration

    @property
    def client(self) -> SessionClient:
        agent = self.exchange.headers.get("user-agent", "")
        return SessionClient(self.exchange.client(self.services.site.proxies), agent)

    @property
    def base(self) -> str:
        return self.services.site.base(self.exchange)

    def takes_password(self, link: OneTimeLink | None = None) -> bool:
        """Return whether people, or whoever follows ``link``, may sign in with a password."""
        policy = self.accounts.sign_in.policy
        operator = link.operator if link is not None else policy.passwords != "off"
        return policy.takes_password(operator=operator)

    @property
    def by_script(self) -> bool:
        return self.exchange.headers.get("hx-request", "") == "true"

    async def see_project(self, id: str) -> None:
        """Read the project with this id into ``view``; raise :class:`NotFound`."""
        self.view = await self.accounts.projects.see(self.actor, id)

    @property
    def overview(self) -> ProjectOverview:
        """Return the project of the path, with its limits and budgets."""
        assert self.view is not None
        return self.view

    @property
    def project(self) -> Project:
        return self.overview.project

    async def rules(self) -> Sequence[AccessRule]:
        """Return the rules for one's own keys in the project of the path."""
        return await self.accounts.access.mine(self.actor, self.project.id)

    @property
    def scope(self) -> str | None:
        """Return the id of the project of the path; ``None`` for a page of the whole service."""
        return self.view.project.id if self.view is not None else None

    async def may(self, action: Action) -> bool:
        """Return true if the user may do something with all of the project, or of the service."""
        return (await self.rights())(action)

    async def rights(self) -> Callable[[Action], bool]:
        """Return a function that says whether the user may do an action, as :meth:`may`."""
        found: Callable[[Action], bool] = (await self.frame())["may"]
        return found

    async def check_right(self, action: Action, made_by: str | None = None) -> None:
        """Raise :class:`Forbidden` unless the user may do the action, on what ``made_by`` made."""
        frame = await self.frame()
        if not frame["may"](action, made_by):
            raise forbidden(action, extent(action, frame["columns"]))

    def keep(self, token: str, life: timedelta | None) -> None:
        """Set the cookie of a new token; without ``life`` it ends with the browser."""
        self.token = token
        secure = self.services.site.secure(self.exchange)
        age = f"; Max-Age={int(life.total_seconds())}" if life is not None else ""
        # ``HttpOnly`` keeps scripts from it, ``SameSite=Lax`` other sites.
        flags = f"Path=/{age}; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
        self._added_headers["set-cookie"] = f"{_choose_cookie_name(secure)}={token}; {flags}"

    async def send_page(self, template: str, /, **values: Any) -> None:
        """Render a template and send it, compressed only if a person opened it from this site.

        The answer to a form is never compressed: it may show a secret.
        """
        text = await self._render_template(template, values)
        opened = self.exchange.method == "GET" and self.problem is None
        if opened and asked_by_person(self.exchange.headers):
            own = self._build_headers()
            await send_compressed(self.exchange, text.encode(), own, content_type=_HTML)
        else:
            self._send_html(text)

    async def send_public_page(self, template: str, /, **values: Any) -> None:
        """Send a page that everybody may see; to strangers with an etag and without a cookie."""
        if self.user is not None:
            await self.send_page(template, **values)
            return
        text = await self._render_template(template, values)
        open_to_all = {"cache-control": "private, no-cache", "vary": "accept-encoding, cookie"}
        body = text.encode()
        etag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        taken = self.exchange.headers.accepts("gzip")
        small = gzip.compress(body, _GZIP_LEVEL, mtime=0) if taken else b""
        page, headers = CachedPage(body, etag, small), {**PAGE_HEADERS, **open_to_all}
        await send_cached(
            self.exchange, page, headers, content_type=_HTML, status=self._response_status
        )

    def send_bare_page(self, template: str, /, **values: Any) -> None:
        """Send a page about a failure without any use of the database."""
        self.user = None
        found = self.services.templates.get_template(template)
        self._send_html(found.render({**self._build_layout(()), **values}))

    def send_image(self, content_type: str, content: bytes) -> None:
        """Send an image that everybody may see and browsers may keep for a day."""
        headers = {**PAGE_HEADERS, **_OF_IMAGES}
        self.exchange.respond(200, content, content_type=content_type, headers=headers)

    def send_json(self, content: bytes) -> None:
        headers = self._build_headers()
        self.exchange.respond(200, content, content_type="application/json", headers=headers)

    async def save(self, file: Export) -> None:
        await file.send(self.exchange, self._build_headers())

    def go(self, path: str, *, done: str = "") -> None:
        """Redirect to a page of the console, with the notice ``done``."""
        target = PREFIX + path + (f"?done={done}" if done else "")
        if self.by_script:
            self.exchange.respond(204, b"", headers=self._build_headers() | {"hx-redirect": target})
        else:
            self.leave(target)

    def leave(self, address: str) -> None:
        """Redirect to an address, which may be another site's."""
        self.exchange.respond(303, b"", headers=self._build_headers() | {"location": address})

    @property
    def _response_status(self) -> int:
        return self.problem.status if self.problem is not None else 200

    def _send_html(self, html: str) -> None:
        self.exchange.respond(
            self._response_status, html.encode(), content_type=_HTML, headers=self._build_headers()
        )

    def _build_headers(self) -> dict[str, str]:
        told = self.problem.headers if self.problem is not None else {}
        headers = {name.lower(): value for name, value in told.items()}
        headers.pop("www-authenticate", None)  # a person is asked by our form
        return {**PAGE_HEADERS, "cache-control": "no-store", **headers, **self._added_headers}

    async def _render_template(self, template: str, values: Mapping[str, Any]) -> str:
        context = {**await self.frame(), **values}
        found = await self.services.templates.ready(template)
        pieces, turns = [], Turns()
        for piece in found.generate(context):
            pieces.append(piece)
            await turns.pause()
        return "".join(pieces)

    async def frame(self) -> dict[str, Any]:
        """Return the template values that every page needs."""
        found = await self._read_memberships()
        around = self._build_layout(found)
        if self.user is not None:
            around["creates"] = self.accounts.projects.room_for(found)
            if (current := around["project"]) is not None:
                around["balance"] = await self.accounts.credits.left(current.id)
        selling = around["balance"] is not None or self.services.open_to.sales.open
        around["sections"] = [each.selling(selling) for each in around["sections"]]
        return around

    async def last_project(self) -> Project | None:
        """Return the user's project that was open last in this browser, else the first."""
        return self._find_last_opened_or_first([one for one, _ in await self._read_memberships()])

    def _find_last_opened_or_first(self, projects: Sequence[Project]) -> Project | None:
        last = next(_read_cookie_values(self.exchange.headers, "causerie-project"), "")
        first = projects[0] if projects else None
        return next((each for each in projects if each.id == last), first)

    async def _read_memberships(self) -> Sequence[tuple[Project, Membership]]:
        if self.user is None:
            return ()
        if self._cached_memberships is None or self.exchange.method != "GET":
            self._cached_memberships = await self.accounts.projects.of(self.user)
        return self._cached_memberships

    def _build_layout(self, memberships: Sequence[tuple[Project, Membership]]) -> dict[str, Any]:
        path, user = self.exchange.path.removeprefix(PREFIX), self.user
        projects = [project for project, _ in memberships]
        current = self.view.project if self.view else self._find_last_opened_or_first(projects)
        role = {one.id: each.role for one, each in memberships}.get(current.id) if current else None
        status = PersonStatus(user.name, user.operator, False, role, user.rights) if user else None
        has_catalog = self.services.has_catalog
        parts = columns(status)

        def may(action: str, made_by: str | None = None) -> bool:
            reach, own = extent(Action(action), parts), user is not None and made_by == user.id
            return reach is Extent.ALL or (reach is Extent.OWN and own)

        return {
            "context": self,
            "problem": self.problem,
            "role": role,
            "user": user,
            "prefix": PREFIX,
            "form_token": form_token(self.token),
            "projects": projects,
            "project": current,
            "columns": parts,
            "may": may,
            "creates": False,
            "balance": None,
            "sections": sections(current, path, may=may, has_catalog=has_catalog),
            "notice": NOTICES.get(self.query.get("done")),
            "now": self.services.clock(),
            "providers": self.services.providers(),
            "open_to_all": self.services.open_to.sign_up,
            "has_catalog": has_catalog,
            "has_rankings": self.services.open_to.rankings,
            "has_status": self.services.open_to.status,
            "has_docs": self.services.site.docs,
        }
