"""One's own account: name, password, second factor, sessions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import segno
from markupsafe import Markup

from causerie.console.visit import Visit
from causerie.errors import InvalidRequest, ServiceError

_ISSUER = "Causerie"
_PAGE = "profile/profile.html"
_LONGEST_ADDRESS = 600
_REMOVAL_FIELDS: Mapping[str, str] = MappingProxyType(
    {"wrong_code": "code", "wrong_credentials": "password"}
)


async def show(visit: Visit) -> None:
    """The page."""
    await visit.show(_PAGE, **await _values(visit))


async def rename(visit: Visit) -> None:
    """Change the name."""
    try:
        visit.check_form()
        await visit.accounts.profile.rename(visit.me, visit.form.get("name"))
    except InvalidRequest as problem:
        await visit.show_problem(_PAGE, problem, **await _values(visit))
        return
    visit.go("/profile", done="name-saved")


async def change_password(visit: Visit) -> None:
    """Change the password; the other sessions end."""
    session_id = visit.session.id if visit.session is not None else None
    old, new = visit.form.raw("old"), visit.form.raw("password")
    try:
        await visit.accounts.profile.change_password(
            visit.me, old, new, visit.client, session_id=session_id
        )
    except ServiceError as problem:
        if problem.code == "wrong_credentials":
            problem.param = "old"
        await visit.show_problem(_PAGE, problem, **await _values(visit))
        return
    visit.go("/profile", done="password-saved")


async def enrol(visit: Visit) -> None:
    """Begin with a second factor: a picture for the app, and a field for its first code."""
    enrolment = await visit.accounts.profile.enrol(visit.me, _ISSUER)
    await _show_enrolment(visit, enrolment.address, enrolment.secret)


async def confirm(visit: Visit) -> None:
    """Take the first code; shows the recovery codes, once."""
    try:
        codes = await visit.accounts.profile.confirm(visit.me, visit.form.get("code"), visit.client)
    except ServiceError as problem:
        address, secret = visit.form.get("address"), visit.form.get("secret")
        await _show_enrolment(visit, address, secret, problem)
        return
    await visit.show("profile/codes.html", codes=codes)


async def ask_removal(visit: Visit) -> None:
    """The form that does away with the second factor."""
    await visit.show("profile/remove.html")


async def remove_factor(visit: Visit) -> None:
    """Do without the second factor."""
    try:
        await visit.accounts.profile.remove_factor(
            visit.me, visit.form.raw("password"), visit.form.get("code"), visit.client
        )
    except ServiceError as problem:
        problem.param = _REMOVAL_FIELDS.get(problem.code or "")
        await visit.show_problem("profile/remove.html", problem)
        return
    visit.go("/profile", done="factor-removed")


async def end_session(visit: Visit) -> None:
    """End one session."""
    await visit.accounts.sign_in.end(visit.me, visit.params["session"])
    visit.go("/profile", done="session-ended")


async def end_others(visit: Visit) -> None:
    """End all sessions but this one."""
    if visit.session is not None:
        await visit.accounts.sign_in.end_others(visit.me, visit.session.id)
    visit.go("/profile", done="sessions-ended")


async def _values(visit: Visit) -> dict[str, Any]:
    return {
        "identities": await visit.accounts.users.identities(visit.me),
        "has_factor": await visit.accounts.profile.has_factor(visit.me),
        "sessions": await visit.accounts.sign_in.sessions(visit.me),
        "current": visit.session.id if visit.session is not None else "",
        "name": visit.form.get("name") or visit.me.name,
    }


async def _show_enrolment(
    visit: Visit, address: str, secret: str, problem: ServiceError | None = None
) -> None:
    """The picture again after a wrong code: what it shows comes back with the form."""
    values: dict[str, Any] = {"picture": _picture(address), "address": address, "secret": secret}
    if problem is None:
        await visit.show("profile/enrol.html", **values)
    else:
        await visit.show_problem("profile/enrol.html", problem, **values)


def _picture(address: str) -> Markup:
    if not address.startswith("otpauth://totp/") or len(address) > _LONGEST_ADDRESS:
        return Markup("")
    code = segno.make(address, error="m", micro=False)
    drawn = code.svg_inline(border=0, omitsize=True, svgclass=None, lineclass=None)
    return Markup(drawn)
