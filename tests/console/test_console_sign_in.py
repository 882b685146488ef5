"""Coming in: passwords, two-factor authentication, one-time links; and one's own account."""

from __future__ import annotations

import re
from html import unescape

from accountkit import PASSWORD, World
from casekit import each_of
from consolekit import Place, console_of

from causerie.hosted.accounts import passwords
from causerie.hosted.accounts.people import REMINDERS, SYSTEM, Role, actor_of
from causerie.hosted.console.sign_in import browser_name

NEW = "nine purple ladders hum"
_MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)"


def code_now(place: Place, secret: str) -> str:
    return passwords.totp_code_at(secret, int(place.world.now.timestamp()) // 30)


async def test_a_second_factor_is_set_up_used_and_removed(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    shown = await visitor.post("/profile/factor")
    secret = shown.code("factor-secret")
    assert "<svg" in shown.text
    wrong = await visitor.post(
        "/profile/factor/confirm",
        {"code": "000000", "secret": secret, "address": "otpauth://totp/x"},
    )
    assert wrong.status == 400
    assert "does not fit" in wrong.text
    codes = await visitor.post("/profile/factor/confirm", {"code": code_now(place, secret)})
    recovery = codes.code("codes").split()
    assert len(recovery) == 10

    other = place.visitor()
    half = await other.sign_in(user)
    assert half.target == "/sign-in/code?next="
    assert (await other.get("/profile")).status == 303
    assert (await other.get("/sign-in/code")).status == 200
    assert (await other.post("/sign-in/code", {"code": "123456"})).status == 401
    place.world.later(seconds=60)
    assert (await other.post("/sign-in/code", {"code": code_now(place, secret)})).status == 303
    assert (await other.get("/profile")).status == 200

    refused = await other.post("/profile/factor/remove", {"password": PASSWORD, "code": "wrong"})
    assert refused.status == 401
    removed = await other.post(
        "/profile/factor/remove", {"password": PASSWORD, "code": recovery[0]}
    )
    assert removed.target == "/profile?done=factor-removed"


async def test_guessing_codes_is_slowed_down(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    secret = (await visitor.post("/profile/factor")).code("factor-secret")
    await visitor.post("/profile/factor/confirm", {"code": code_now(place, secret)})
    thief = place.visitor()
    await thief.sign_in(user)
    await thief.get("/sign-in/code")
    statuses = [(await thief.post("/sign-in/code", {"code": f"{n:06}"})).status for n in range(6)]
    assert statuses == [401] * 5 + [429]


async def test_a_code_that_comes_too_late_loses_nothing_but_its_session(place: Place) -> None:
    visitor = place.visitor()
    await visitor.get("/sign-in/code")
    late = await visitor.post("/sign-in/code", {"code": "123456", "next": "/console/profile?a=b"})
    assert late.target == "/sign-in?done=session-ended&next=/console/profile%3Fa%3Db"


async def test_the_first_link_makes_an_operator(place: Place) -> None:
    made = await place.world.users.first_link()
    assert made is not None
    visitor = place.visitor()
    assert "data-link" in (await visitor.get("/link")).text
    shown = await visitor.post("/link", {"token": made.token})
    assert "Welcome to Causerie" in shown.text
    fields = {"token": made.token, "email": "ada@example.org", "name": "Ada"}
    weak = await visitor.post("/link/account", fields | {"password": "short"})
    assert weak.status == 400
    assert 'value="Ada"' in weak.text
    entered = await visitor.post("/link/account", fields | {"password": NEW})
    assert (entered.status, entered.target) == (303, "/")
    assert re.fullmatch("/projects/prj_[^/]+/overview", (await visitor.get("/")).target)
    assert (await visitor.get("/link")).status == 200
    again = await visitor.post("/link", {"token": made.token})
    assert again.status == 404
    assert "does not work any more" in again.text


async def test_an_invitation_brings_somebody_new_into_a_project(place: Place) -> None:
    owner = await place.world.person()
    project = await place.world.project(owner=owner)
    made = await place.world.projects.invite(
        actor_of(owner), project.id, Role.MEMBER, email="bo@example.org"
    )
    visitor = place.visitor()
    await visitor.get("/link")
    shown = await visitor.post("/link", {"token": made.token})
    assert "Join Project" in shown.text
    fields = {"token": made.token, "email": "mallory@example.org", "name": "Bo", "password": NEW}
    entered = await visitor.post("/link/account", fields)
    assert entered.target == "/sign-in?done=account-ready"
    signed = {"email": "bo@example.org", "password": NEW, "next": ""}  # the invitation's address
    assert (await visitor.post("/sign-in", signed)).target == "/"
    assert (await visitor.get("/")).target.startswith(f"/projects/{project.id}/")
    assert "bo@example.org" in (await visitor.get("/profile")).text


async def test_an_invitation_brings_somebody_known_into_a_project(place: Place) -> None:
    owner, guest = await place.world.person(), await place.world.person()
    project = await place.world.project(owner=owner)
    made = await place.world.projects.invite(actor_of(owner), project.id, Role.VIEWER)
    visitor = await place.visitor_of(guest)
    assert "You join as viewer" in (await visitor.post("/link", {"token": made.token})).text
    joined = await visitor.post("/link/join", {"token": made.token})
    assert joined.target == f"/projects/{project.id}/keys?done=joined"


async def test_who_accepts_no_project_is_told_of_none(place: Place) -> None:
    made = await place.world.users.invite(SYSTEM)
    visitor = await place.visitor_of(await place.world.person())
    await visitor.get("/link")
    assert (await visitor.post("/link/join", {"token": made.token})).target == "/"


async def test_a_reset_link_changes_the_password_and_ends_sessions(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    old = await place.visitor_of(user)
    made = await place.world.users.reset_link(SYSTEM, user.id)
    visitor = place.visitor()
    await visitor.get("/link")
    assert "new password" in (await visitor.post("/link", {"token": made.token})).text
    done = await visitor.post("/link/password", {"token": made.token, "password": NEW})
    assert done.target == "/sign-in?done=password-reset"
    assert (await old.get("/profile")).status == 303
    assert (await visitor.sign_in(user, NEW)).status == 303


async def test_password_and_name_are_changed(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor, other = await place.visitor_of(user), await place.visitor_of(user)
    wrong = await visitor.post("/profile/password", {"old": "no", "password": NEW})
    assert (wrong.status, "The password is wrong" in wrong.text) == (401, True)
    changed = await visitor.post("/profile/password", {"old": PASSWORD, "password": NEW})
    assert changed.target == "/profile?done=password-saved"
    assert (await visitor.get("/profile")).status == 200
    assert (await other.get("/profile")).status == 303
    assert (await visitor.post("/profile/name", {"name": " "})).status == 400
    await visitor.post("/profile/name", {"name": "Grace Hopper"})
    assert "Grace Hopper" in (await visitor.get("/profile")).text


async def test_reminders_are_chosen_in_the_profile(place: Place) -> None:
    visitor = await place.visitor_of(await place.world.person("ada", password=PASSWORD))

    def ticked(text: str) -> list[str]:
        return re.findall(r'name="reminder" value="(\w+)" checked', text)

    assert ticked((await visitor.get("/profile")).text) == [*REMINDERS]
    await visitor.post("/profile/reminders", {"reminder": "credits"})
    assert ticked((await visitor.get("/profile")).text) == ["credits"]
    await visitor.post("/profile/name", {"name": "Ada"})
    assert ticked((await visitor.get("/profile")).text) == ["credits"]
    await visitor.post("/profile/reminders", {})
    assert ticked((await visitor.get("/profile")).text) == []


@each_of(
    ("agent", "name"),
    [
        (
            f"{_MAC} AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17 Safari/605",
            "Safari on macOS",
        ),
        (f"{_MAC} Gecko/20100101 Firefox/140.0", "Firefox on macOS"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/150.0 Safari/537.36 Edg/150.0", "Edge on Windows"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/150.0 Mobile Safari/537.36", "Chrome on Android"),
        ("Mozilla/5.0 (iPhone; CPU like Mac OS X) CriOS/150 Safari/604.1", "Chrome on iOS"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", "unknown"),
    ],
)
def test_a_session_is_named_by_its_browser(agent: str, name: str) -> None:
    assert browser_name(agent) == name


async def test_sessions_are_ended_by_their_owner_only(place: Place) -> None:
    user, stranger = await place.world.person(), await place.world.person()
    mine, other = await place.visitor_of(user), await place.visitor_of(user)
    page = await mine.get("/profile")
    (session,) = set(re.findall(r"/profile/sessions/(ses_\w+)/end", page.text))
    foreign = await place.visitor_of(stranger)
    assert (await foreign.post(f"/profile/sessions/{session}/end")).status == 404
    assert (await mine.post(f"/profile/sessions/{session}/end")).status == 303
    assert (await other.get("/profile")).status == 303
    third = await place.visitor_of(user)
    await mine.post("/profile/sessions/end-others")
    assert (await third.get("/profile")).status == 303
    assert (await mine.get("/profile")).status == 200


async def test_without_an_invitation_nobody_makes_an_account(place: Place) -> None:
    visitor = place.visitor()
    assert "/sign-up" not in (await visitor.get("/sign-in")).text
    assert (await visitor.get("/sign-up")).status == 404


async def test_guesses_in_the_profile_are_slowed_down_in_its_own_forms(place: Place) -> None:
    ada = await place.world.person("ada", password=PASSWORD)
    visitor = await place.visitor_of(ada)
    guess = {"old": "guess", "password": NEW}
    for _ in range(5):
        page = await visitor.post("/profile/password", guess)
        assert page.status == 401
    page = await visitor.post("/profile/password", guess | {"old": PASSWORD})
    assert (page.status, page.headers["retry-after"]) == (429, "1")
    assert "Too many attempts failed. Try again in a second." in page.text
    assert 'name="old"' in page.text
    place.world.later(seconds=1)
    assert (await visitor.post("/profile/password", guess | {"old": PASSWORD})).status == 303


async def test_guesses_of_a_first_code_are_slowed_down_with_the_picture_still_there(
    place: Place,
) -> None:
    visitor = await place.visitor_of(await place.world.person("ada", password=PASSWORD))
    begun = await visitor.post("/profile/factor")
    fields = {name: _hidden(begun.text, name) for name in ("address", "secret")}
    for _ in range(5):
        page = await visitor.post("/profile/factor/confirm", fields | {"code": "000000"})
        assert page.status == 400
    page = await visitor.post("/profile/factor/confirm", fields | {"code": "000000"})
    assert page.status == 429
    assert "Try again in a second." in page.text
    assert fields["secret"] in page.text


async def test_guesses_of_links_are_slowed_down(place: Place) -> None:
    visitor = place.visitor()
    await visitor.get("/link")
    for number in range(20):
        paths = ("/link", "/link/account", "/link/password")
        page = await visitor.post(paths[number % 3], {"token": f"guess{number}"})
        assert page.status == 404
    page = await visitor.post("/link", {"token": "guess"})
    assert page.status == 429
    assert "Try again in a second." in page.text
    assert 'name="token"' in page.text


async def test_accounts_are_not_made_in_masses(lite: World) -> None:
    async with console_of(lite, open_to_all=True) as place:
        visitor = place.visitor()
        await visitor.get("/sign-up")
        for number in range(20):
            fields = {"email": f"a{number}@example.org"}
            assert (await visitor.post("/sign-up", fields)).status == 200
        page = await visitor.post("/sign-up", {"email": "a20@example.org"})
        assert page.status == 429
        assert "Try again in a second." in page.text
        assert "a20@example.org" in page.text


def _hidden(text: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found, text
    return unescape(found[1])
