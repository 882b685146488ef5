"""Pages for signing in and out, one-time links, sign-ups, and one's own account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec
import segno
from markupsafe import Markup

from causerie.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    RateLimited,
    ServiceError,
    Unauthenticated,
)
from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.encryption import Cipher, WrongKey
from causerie.hosted.accounts.keys import SIGN_UP, LinkKind, NewLink, OneTimeLink
from causerie.hosted.accounts.people import REMINDERS, SYSTEM
from causerie.hosted.accounts.tokens import (
    SECOND_FACTOR_LIFE,
    NewSession,
    Stage,
    new_token,
    tidy_email,
)
from causerie.hosted.console.fields import page_of
from causerie.hosted.console.request_context import PREFIX, RequestContext
from causerie.hosted.console.words import WORDS
from causerie.hosted.identity.provider import OidcProvider, Returned, SignInAttempt
from causerie.observe.mail import Letter


def send_letter(
    context: RequestContext, to: str, kind: str, address: str = "", **values: str
) -> bool:
    """Queue an e-mail of a kind in the table of words; return false if the service sends none.

    ``address`` is that of its button. Only services with a mail server and a public address send
    letters: a link that began with the host that a visitor names would lead its reader there.
    """
    outbox, service = context.services.open_to.outbox, context.services.site.brand.name
    if outbox is None:
        return False
    words, values = WORDS["letters"][kind], {**values, "service": service, "base": context.base}
    texts = (words["subject"], *words["lines"])
    subject, first, *others = (text.format_map(values) for text in texts)
    button = (words["button"], address) if address else None
    told = [first, *([f"    {address}"] if address else []), *others]
    page = context.services.templates.get_template("letter.html")
    html = page.render(subject=subject, lines=[first, *others], button=button, base=context.base)
    outbox.send(Letter(to, subject, "\n\n".join(told) + "\n", html, service))
    return True


async def show_sign_in(context: RequestContext) -> None:
    after = context.form.get("next", context.query.get("next"))
    if context.user is not None and context.problem is None:
        context.go(next_path(after))
        return
    await context.send_page("sign_in/password.html", next=after, email=context.form.get("email"))


async def enter_password(context: RequestContext) -> None:
    form, sign_in = context.form, context.accounts.sign_in
    started = await sign_in.with_password(
        form.get("email"), form.raw("password"), context.client, old_token=context.token
    )
    go_on(context, started, form.get("next"))


async def enter_code(context: RequestContext) -> None:
    after, code = context.form.get("next"), context.form.get("code")
    try:
        started = await context.accounts.sign_in.with_code(context.token, code, context.client)
    except Unauthenticated as problem:
        if problem.code != "session_ended":
            raise
        context.go(f"/sign-in?done=session-ended&next={quote(after)}")
        return
    go_on(context, started, after)


async def sign_out(context: RequestContext) -> None:
    if context.session is not None:
        await context.accounts.sign_in.end(context.me, context.session.id)
    context.keep(new_token(), None)
    context.go("/sign-in", done="signed-out")


def go_on(context: RequestContext, started: NewSession, after: str) -> None:
    """Set the session's cookie; redirect to the page for a second-factor code, or to ``after``."""
    if started.session.stage is Stage.SECOND_FACTOR:
        context.keep(started.token, SECOND_FACTOR_LIFE)
        context.go(f"/sign-in/code?next={quote(after)}")
        return
    session = started.session
    context.keep(started.token, session.expires_at - session.created_at)
    context.go(next_path(after))


def next_path(given: str) -> str:
    """Return the path of ``given`` below the console; ``/`` if it leads anywhere else."""
    inside = given.startswith(f"{PREFIX}/") and given.isascii() and given.isprintable()
    if not inside or "//" in given or "\\" in given:
        return "/"
    return given.removeprefix(PREFIX)


def link_address(base: str, token: str, after: str = "") -> str:
    """Return the link for a token, which leads to ``after`` in the end.

    ``base`` is the service's address without a path.
    """
    # Behind the # the token gets into no log and no ``Referer``; a script puts it into a form.
    query = f"?next={quote(after)}" if after else ""
    return f"{base}{PREFIX}/link{query}#{token}"


async def show_new_link(
    context: RequestContext, title: str, made: NewLink, back: str, offered: str = ""
) -> None:
    """Show a new one-time link and a way ``back``; mail it if it invites to ``offered``."""
    address = link_address(context.base, made.token)
    mailed, me = await _may_mail_link(context, made, offered), context.me
    if mailed and made.link.email:
        values = {"offered": offered, "name": me.name, "email": me.email}
        mailed = send_letter(context, made.link.email, "invitation", address, **values)
    shown = {"title": title, "address": address, "link": made.link, "back": back}
    await context.send_page("project/link.html", mailed=mailed, **shown)


async def _may_mail_link(context: RequestContext, new_link: NewLink, invited_to: str) -> bool:
    # Whoever has signed up can invite any address; a link that is not mailed is handed over.
    if not invited_to or not new_link.link.email:
        return False
    if context.me.operates:
        return True
    scopes = passwords.invitation_scopes(context.me.id, new_link.link.email)
    try:
        await context.accounts.attempts.begin(scopes)
    except RateLimited:
        return False
    return True


async def follow_link(context: RequestContext) -> None:
    if isinstance(context.problem, NotFound):  # it has been counted as a guess
        raise context.problem
    link, offered = await _require_form_token_link(context), None
    if link.project_id is not None:  # whoever holds the link may know the project's name
        offered = (await context.accounts.projects.see(SYSTEM, link.project_id)).project
    page = _PAGES.get(link.kind, "links/account.html")
    if link.kind is LinkKind.INVITATION and context.user is not None:
        page = "links/join.html"
    await context.send_page(page, link=link, offered=offered, signs_up=_proves_address(link))


_PAGES = {LinkKind.RESET: "links/password.html", LinkKind.ADDRESS: "links/address.html"}


async def _require_form_token_link(context: RequestContext) -> OneTimeLink:
    # Whoever guesses often has to wait.
    async with context.accounts.attempts.from_address("link", context.client):
        return await context.accounts.users.link(context.form.get("token"))


async def accept_invitation(context: RequestContext) -> None:
    form, accounts, link = context.form, context.accounts, await _require_form_token_link(context)
    email, password = link.email or form.get("email"), form.raw("password")
    if not context.takes_password(link):
        raise Forbidden(
            "Passwords are not accepted here. Continue with your identity provider.",
            code="sso_required",
        )
    try:
        token, name = form.get("token"), form.get("name")
        await accounts.users.accept(token, email=email, name=name, password=password)
    except ServiceError as problem:
        if problem.code != "taken" or _proves_address(link):
            raise
        await accounts.attempts.begin(passwords.address_scopes("link", context.client.address))
    if not _proves_address(link):  # whoever has the link may not be who has the address
        context.go("/sign-in", done="account-ready")
        return
    started = await accounts.sign_in.with_password(
        email, password, context.client, old_token=context.token
    )
    go_on(context, started, form.get("next"))


def _proves_address(link: OneTimeLink) -> bool:
    # Only the holder of the address can have such a link.
    return link.kind is LinkKind.OWNER or link.created_by == SIGN_UP.label


async def join_project(context: RequestContext) -> None:
    link = await _require_form_token_link(context)
    await context.accounts.users.join(context.form.get("token"), context.me)
    if link.project_id is None:
        context.go("/")
    else:
        context.go(f"/projects/{link.project_id}/keys", done="joined")


async def reset_password(context: RequestContext) -> None:
    await _require_form_token_link(context)
    token, password = context.form.get("token"), context.form.raw("password")
    await context.accounts.profile.reset_password(token, password)
    context.go("/sign-in", done="password-reset")


_PURPOSE = "login_state"
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class LoginState:
    attempt: SignInAttempt
    after: str = ""
    """Page to open afterwards."""
    link: str = field(default="", repr=False)
    """Secret of an invitation."""
    joins: bool = False
    """Add the identity to the account that the visitor is signed in to."""


_decoder = msgspec.json.Decoder(LoginState)


def unsealed(state: str, token: str) -> LoginState | None:
    """Decrypt a sign-in's ``state`` with the visitor's ``token``; return ``None`` if not theirs."""
    if not state.isascii() or len(state) > _LONGEST:
        return None
    try:
        return _decoder.decode(Cipher([token]).open(state, _PURPOSE))
    except (WrongKey, msgspec.DecodeError):
        return None


async def begin_openid(context: RequestContext) -> None:
    context.leave(await _build_sign_in_url_holding_state(context, after=context.query.get("next")))


async def begin_openid_with_link(context: RequestContext) -> None:
    await _require_form_token_link(context)
    await _show_page_leading_to_identity_provider(context, link=context.form.get("token"))


async def begin_linking(context: RequestContext) -> None:
    await _show_page_leading_to_identity_provider(context, joins=True)


async def _show_page_leading_to_identity_provider(
    context: RequestContext, *, link: str = "", joins: bool = False
) -> None:
    # A link, as the content policy lets no form lead to another site.
    address = await _build_sign_in_url_holding_state(context, link=link, joins=joins)
    await context.send_page(
        "sign_in/away.html", provider=_find_identity_provider(context), address=address
    )


async def return_from_provider(context: RequestContext) -> None:
    provider, query = _find_identity_provider(context), context.query
    login_state = unsealed(query.get("state"), context.token)
    returned = Returned(code=query.get("code"), error=query.get("error"), issuer=query.get("iss"))
    accounts, client, options = context.accounts, context.client, provider.options
    async with accounts.sign_in.audited(client, options.issuer) as who:
        async with accounts.attempts.from_address("provider", client):
            vouched = await provider.finish(
                login_state.attempt if login_state is not None else None, returned
            )
        who.email, who.identity = vouched.email, vouched.identity
        if login_state is not None and login_state.joins:
            await accounts.users.link_identity(context.me, *vouched.identity)
            context.go("/profile", done="identity-linked")
            return
        started = await accounts.arrivals.enter(
            vouched,
            client,
            domains=options.domains,
            join=options.join,
            link_token=login_state.link if login_state is not None else "",
            old_token=context.token,
        )
    after = await _get_link_or_after_path(context, login_state) if login_state is not None else ""
    go_on(context, started, after)


async def unlink_identity(context: RequestContext) -> None:
    form, users = context.form, context.accounts.users
    await users.unlink_identity(context.me, form.get("issuer"), form.raw("subject"))
    context.go("/profile", done="identity-unlinked")


async def _get_link_or_after_path(context: RequestContext, login_state: LoginState) -> str:
    try:
        link = await context.accounts.users.link(login_state.link)
    except NotFound:  # there was none, or it has just been used up
        return login_state.after
    wanted = link.project_id is not None or link.operator
    return link_address("", login_state.link) if wanted else login_state.after


def _find_identity_provider(context: RequestContext) -> OidcProvider:
    for provider in context.services.providers():
        if provider.options.name == context.params["provider"]:
            return provider
    raise NotFound("There is no such page.")


async def _build_sign_in_url_holding_state(
    context: RequestContext, *, after: str = "", link: str = "", joins: bool = False
) -> str:
    def state(attempt: SignInAttempt) -> str:
        # Encrypted with the token of the visitor's session, so that nobody else can read or make
        # one, and nothing is stored for visitors who never come back.
        login_state = LoginState(attempt, after, link, joins)
        return Cipher([context.token]).seal(msgspec.json.encode(login_state).decode(), _PURPOSE)

    provider = _find_identity_provider(context)
    back = f"{context.base}{PREFIX}/sign-in/{quote(provider.options.name)}/back"
    return await provider.begin(back, state)


async def change_address(context: RequestContext) -> None:
    await _require_form_token_link(context)
    token = context.form.get("token")
    before, after = await context.accounts.profile.change_address(token)
    send_letter(context, before, "address_changed", email=after)
    context.go("/profile", done="address-changed")


async def send_reset(context: RequestContext) -> None:
    """Mail a link for a new password to the holder of an account."""
    # The answer is the same whether the address has an account, as is the work.
    email = tidy_email(context.form.get("email"))
    scopes = passwords.sign_up_scopes(f"reset:{email}", context.client.address)
    await context.accounts.attempts.begin(scopes)
    made, known = await context.accounts.sign_ups.forgotten(email)
    if known:
        send_letter(context, email, "reset", link_address(context.base, made.token))
    await context.send_page("sign_in/asked.html", email=email, by_mail=True)


async def enter_sign_up(context: RequestContext) -> None:
    """Create a sign-up for an address, and mail its holder."""
    # The answer is the same whether the address has an account: only its holder learns that.
    email, after = tidy_email(context.form.get("email")), context.form.get("next")
    # Every sign-up counts, right or not.
    await context.accounts.attempts.begin(passwords.sign_up_scopes(email, context.client.address))
    made, known = await context.accounts.sign_ups.ask(email)
    kind, address = "known", f"{context.base}{PREFIX}/sign-in"
    if not known:
        kind, address = "sign_up", link_address(context.base, made.token, after)
    send_letter(context, email, kind, address)
    by_mail = context.services.open_to.outbox is not None
    await context.send_page("sign_in/asked.html", email=email, by_mail=by_mail)


_LONGEST_ADDRESS = 600
_REMOVAL_FIELDS: Mapping[str, str] = {"wrong_code": "code", "wrong_credentials": "password"}


_BROWSERS = (
    *(("Edg", "Edge"), ("OPR", "Opera"), ("SamsungBrowser", "Samsung Internet")),
    *(("Firefox", "Firefox"), ("FxiOS", "Firefox"), ("CriOS", "Chrome"), ("Chrome", "Chrome")),
    ("Safari", "Safari"),
)
_SYSTEMS = (
    *(("iPhone", "iOS"), ("iPad", "iPadOS"), ("Android", "Android"), ("CrOS", "ChromeOS")),
    *(("Windows", "Windows"), ("Mac OS X", "macOS"), ("Linux", "Linux")),
)


def browser_name(agent: str) -> str:
    """Return the browser and system that a ``User-Agent`` names; else the header itself."""
    known = (_BROWSERS, _SYSTEMS)  # the first mark that is there counts: many name others too
    named = [next((name for mark, name in one if mark in agent), "") for one in known]
    return " on ".join(filter(None, named)) or agent or "unknown"


async def show_profile(context: RequestContext) -> None:
    sessions = await context.accounts.sign_in.sessions(context.me)
    await context.send_page(
        "profile/profile.html",
        identities=await context.accounts.users.identities(context.me),
        has_factor=await context.accounts.profile.has_factor(context.me),
        page=page_of(sessions, context.query, lambda _: ()),
        browser_name=browser_name,
        reminders=REMINDERS if context.services.open_to.reminders else (),
    )


async def rename_account(context: RequestContext) -> None:
    await context.accounts.profile.rename(context.me, context.form.get("name"))
    context.go("/profile", done="name-saved")


async def choose_reminders(context: RequestContext) -> None:
    await context.accounts.profile.choose_reminders(context.me, context.form.every("reminder"))
    context.go("/profile", done="reminders-saved")


async def change_password(context: RequestContext) -> None:
    session_id = context.session.id if context.session is not None else None
    old, new = context.form.raw("old"), context.form.raw("password")
    profile, me, client = context.accounts.profile, context.me, context.client
    try:
        await profile.change_password(me, old, new, client, session_id=session_id)
    except ServiceError as problem:
        if problem.code == "wrong_credentials":
            problem.param = "old"
        raise
    context.go("/profile", done="password-saved")


async def send_address(context: RequestContext) -> None:
    """Mail to a user's new e-mail address the link that confirms the change."""
    email = tidy_email(context.form.get("email"))
    await context.accounts.attempts.begin(passwords.sign_up_scopes(email, context.client.address))
    profile, password = context.accounts.profile, context.form.raw("password")
    made = await profile.new_address(context.me, email, password, context.client)
    if made is not None:
        address = link_address(context.base, made.token)
        send_letter(context, email, "address", address, name=context.me.name)
    context.go("/profile", done="address-asked")


async def delete_account(context: RequestContext) -> None:
    if context.form.get("email").lower() != context.me.email:
        raise InvalidRequest("Type the address of your account.", param="email")
    await context.accounts.profile.close(context.me, context.form.raw("password"), context.client)
    context.keep(new_token(), None)
    context.go("/sign-in", done="account-deleted")


async def enrol_factor(context: RequestContext) -> None:
    enrolment = await context.accounts.profile.enrol(context.me, context.services.site.brand.name)
    await _show_enrolment(context, enrolment.address, enrolment.secret)


async def enrol_factor_again(context: RequestContext) -> None:
    await _show_enrolment(context, context.form.get("address"), context.form.get("secret"))


async def confirm_factor(context: RequestContext) -> None:
    profile, code = context.accounts.profile, context.form.get("code")
    codes = await profile.confirm(context.me, code, context.client)
    await context.send_page("profile/codes.html", codes=codes)


async def remove_factor(context: RequestContext) -> None:
    password, code = context.form.raw("password"), context.form.get("code")
    try:
        await context.accounts.profile.remove_factor(context.me, password, code, context.client)
    except ServiceError as problem:
        problem.param = _REMOVAL_FIELDS.get(problem.code or "")
        raise
    context.go("/profile", done="factor-removed")


async def end_session(context: RequestContext) -> None:
    await context.accounts.sign_in.end(context.me, context.params["session"])
    context.go("/profile", done="session-ended")


async def end_others(context: RequestContext) -> None:
    if context.session is not None:
        await context.accounts.sign_in.end_others(context.me, context.session.id)
    context.go("/profile", done="sessions-ended")


async def _show_enrolment(context: RequestContext, otpauth_uri: str, secret: str) -> None:
    qr = _draw_qr_code(otpauth_uri)
    await context.send_page("profile/enrol.html", picture=qr, address=otpauth_uri, secret=secret)


def _draw_qr_code(otpauth_uri: str) -> Markup:
    if not otpauth_uri.startswith("otpauth://totp/") or len(otpauth_uri) > _LONGEST_ADDRESS:
        return Markup("")
    code = segno.make(otpauth_uri, error="m", micro=False)
    drawn = code.svg_inline(border=0, omitsize=True, svgclass=None, lineclass=None)
    return Markup(drawn)
