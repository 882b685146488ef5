"""One's own account: name, password, two-factor authentication, sessions."""

from __future__ import annotations

from collections.abc import Mapping

import segno
from markupsafe import Markup

from causerie.errors import InvalidRequest, ServiceError
from causerie.hosted.accounts.passwords import sign_up_scopes
from causerie.hosted.accounts.tokens import new_token, tidy_email
from causerie.hosted.console.fields import page_of
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.sign_in import link_address, send_letter

_LONGEST_ADDRESS = 600
_REMOVAL_FIELDS: Mapping[str, str] = {"wrong_code": "code", "wrong_credentials": "password"}


async def show(context: RequestContext) -> None:
    sessions = await context.accounts.sign_in.sessions(context.me)
    await context.show(
        "profile/profile.html",
        identities=await context.accounts.users.identities(context.me),
        has_factor=await context.accounts.profile.has_factor(context.me),
        page=page_of(sessions, context.query, lambda _: ()),
        current=context.session.id if context.session is not None else "",
        name=context.form.get("name") or context.me.name,
    )


async def rename(context: RequestContext) -> None:
    await context.accounts.profile.rename(context.me, context.form.get("name"))
    context.go("/profile", done="name-saved")


async def change_password(context: RequestContext) -> None:
    session_id = context.session.id if context.session is not None else None
    old, new = context.form.raw("old"), context.form.raw("password")
    try:
        await context.accounts.profile.change_password(
            context.me, old, new, context.client, session_id=session_id
        )
    except ServiceError as problem:
        if problem.code == "wrong_credentials":
            problem.param = "old"
        raise
    context.go("/profile", done="password-saved")


async def ask_address(context: RequestContext) -> None:
    await context.show("profile/address.html", email=context.form.get("email"))


async def send_address(context: RequestContext) -> None:
    """Mail a link to the new address, whose holder it has to be."""
    email = tidy_email(context.form.get("email"))
    await context.accounts.attempts.begin(sign_up_scopes(email, context.client.address))
    made = await context.accounts.profile.new_address(
        context.me, email, context.form.raw("password"), context.client
    )
    if made is not None:
        address = link_address(context.base, made.token)
        send_letter(context, email, "address", address, name=context.me.name)
    context.go("/profile", done="address-asked")


async def ask_deletion(context: RequestContext) -> None:
    await context.show("profile/delete.html")


async def delete(context: RequestContext) -> None:
    if context.form.get("email").lower() != context.me.email:
        raise InvalidRequest("Type the address of your account.", param="email")
    await context.accounts.profile.close(context.me, context.form.raw("password"), context.client)
    context.keep(new_token(), None)
    context.go("/sign-in", done="account-deleted")


async def enrol(context: RequestContext) -> None:
    enrolment = await context.accounts.profile.enrol(context.me, context.services.site.brand.name)
    await _show_enrolment(context, enrolment.address, enrolment.secret)


async def enrol_again(context: RequestContext) -> None:
    await _show_enrolment(context, context.form.get("address"), context.form.get("secret"))


async def confirm(context: RequestContext) -> None:
    codes = await context.accounts.profile.confirm(
        context.me, context.form.get("code"), context.client
    )
    await context.show("profile/codes.html", codes=codes)


async def ask_removal(context: RequestContext) -> None:
    await context.show("profile/remove.html")


async def remove_factor(context: RequestContext) -> None:
    try:
        await context.accounts.profile.remove_factor(
            context.me, context.form.raw("password"), context.form.get("code"), context.client
        )
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


async def _show_enrolment(context: RequestContext, address: str, secret: str) -> None:
    picture = _picture(address)
    await context.show("profile/enrol.html", picture=picture, address=address, secret=secret)


def _picture(address: str) -> Markup:
    if not address.startswith("otpauth://totp/") or len(address) > _LONGEST_ADDRESS:
        return Markup("")
    code = segno.make(address, error="m", micro=False)
    drawn = code.svg_inline(border=0, omitsize=True, svgclass=None, lineclass=None)
    return Markup(drawn)
