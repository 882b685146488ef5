"""One's own account: name, password, two-factor authentication, sessions."""

from __future__ import annotations

from collections.abc import Mapping

import segno
from markupsafe import Markup

from causerie.errors import ServiceError
from causerie.hosted.console.fields import page_of
from causerie.hosted.console.request_context import RequestContext

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
