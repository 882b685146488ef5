"""Letters: new passwords, invitations, new addresses; and what a deleted account leaves."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from email.message import EmailMessage

import pytest
from accountkit import PASSWORD, World
from consolekit import Place, console_of
from smtpserver import Mailbox, smtp, text_of
from test_mail import outbox

from causerie.errors import InvalidRequest, NotFound, Unauthenticated
from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.tokens import SessionClient

NEW = "nine purple ladders hum"


@pytest.fixture
async def box() -> AsyncIterator[Mailbox]:
    async with smtp() as there:
        yield there


@pytest.fixture
async def place(lite: World, box: Mailbox) -> AsyncIterator[Place]:
    async with outbox(box) as out, console_of(lite, open_to_all=True, outbox=out) as there:
        yield there


def token_in(letter: EmailMessage) -> str:
    found = re.search(r"/console/link[^#\s]*#(\w+)", text_of(letter))
    assert found, text_of(letter)
    html = letter.get_body(("html",))
    assert html is not None
    assert found[1] in html.get_content()
    assert letter["From"].startswith("Causerie <")
    return found[1]


async def test_a_forgotten_password_is_replaced_by_letter(place: Place, box: Mailbox) -> None:
    ada = await place.world.person("ada", password=PASSWORD)
    visitor = place.visitor()
    assert "/sign-in/forgotten" in (await visitor.get("/sign-in")).text
    await visitor.get("/sign-in/forgotten")
    pages = []
    for email in ("nobody@example.org", ada.email):
        page = await visitor.post("/sign-in/forgotten", {"email": email})
        text = re.sub('form.token" (content|value)="[^"]*"', "", page.text)
        pages.append((page.status, text.replace(email, "X")))
    assert pages[0] == pages[1]
    letter = await box.letter()
    assert (letter["To"], letter["Subject"]) == (ada.email, "A new password for Causerie")
    token = token_in(letter)
    assert "Choose a new password" in (await visitor.post("/link", {"token": token})).text
    changed = await visitor.post("/link/password", {"token": token, "password": NEW})
    assert changed.target == "/sign-in?done=password-reset"
    assert (await visitor.post("/link/password", {"token": token, "password": NEW})).status == 404
    await place.world.sign_in.with_password(ada.email, NEW, SessionClient())
    assert box.letters.empty()
    for _ in range(3):
        last = await visitor.post("/sign-in/forgotten", {"email": ada.email})
    assert last.status == 429


async def test_an_invitation_is_sent_and_the_last_one_works(place: Place, box: Mailbox) -> None:
    world = place.world
    owner = await world.person("owner")
    project = await world.project(owner=owner)
    visitor, tokens = await place.visitor_of(owner), []
    for _ in range(2):
        fields = {"email": "ben@example.org", "role": "member"}
        page = await visitor.post(f"/projects/{project.id}/invite", fields)
        assert "on its way to ben@example.org" in page.text
        letter = await box.letter()
        assert letter["Subject"] == "owner invites you to Project (Causerie)"
        tokens.append(token_in(letter))
    assert "Send again" in (await visitor.get(f"/projects/{project.id}")).text
    assert len(await world.projects.invitations(SYSTEM, project.id)) == 1
    with pytest.raises(NotFound):
        await world.users.link(tokens[0])
    assert (await world.users.link(tokens[1])).email == "ben@example.org"
    for mailed in (True, False):  # who has signed up cannot fill the box of a stranger
        page = await visitor.post(f"/projects/{project.id}/invite", fields)
        assert ("on its way to ben@example.org" in page.text) is mailed


async def test_an_address_changes_once_its_holder_says_so(place: Place, box: Mailbox) -> None:
    ada = await place.world.person("ada", password=PASSWORD)
    await place.world.person("ben")
    visitor = await place.visitor_of(ada)
    wrong = await visitor.post("/profile/address", {"email": "a@b.org", "password": "no"})
    assert wrong.status == 401
    for email in ("ben@example.org", "new@example.org"):
        sent = await visitor.post("/profile/address", {"email": email, "password": PASSWORD})
        assert sent.target == "/profile?done=address-asked"
    letter = await box.letter()
    assert letter["To"] == "new@example.org"
    token = token_in(letter)
    stranger = place.visitor()
    await stranger.get("/link")
    assert "new@example.org" in (await stranger.post("/link", {"token": token})).text
    assert (await stranger.post("/link/address", {"token": token})).status == 303
    assert (await place.world.users.see(SYSTEM, ada.id)).email == "new@example.org"
    told = await box.letter()
    assert (told["To"], "new@example.org" in text_of(told)) == ("ada@example.org", True)
    assert (await stranger.post("/link/address", {"token": token})).status == 404


async def test_a_deleted_account_leaves_no_name_and_no_way_in(place: Place) -> None:
    world = place.world
    ada, ben = await world.person("ada", password=PASSWORD), await world.person("ben")
    alone, shared = await world.project(owner=ada), await world.project(owner=ada, member=ben)
    key = await world.key(alone, ada)
    visitor = await place.visitor_of(ada)
    sent = {"email": ada.email, "password": PASSWORD}
    assert (await visitor.post("/profile/delete", sent | {"email": "b@c.org"})).status == 400
    assert (await visitor.post("/profile/delete", sent | {"password": "no"})).status == 401
    refused = await visitor.post("/profile/delete", sent)
    assert (refused.status, "its owner first" in refused.text) == (409, True)
    await world.projects.remove(SYSTEM, shared.id, ben.id)
    assert (await visitor.post("/profile/delete", sent)).target == "/sign-in?done=account-deleted"
    gone = await world.users.see(SYSTEM, ada.id)
    assert (gone.name, gone.password, ada.email in gone.email) == ("Deleted account", None, False)
    with pytest.raises(Unauthenticated):
        await world.sign_in.with_password(ada.email, PASSWORD, SessionClient())
    assert (await visitor.get("/profile")).status == 303
    assert (await world.projects.see(SYSTEM, alone.id)).project.archived_at is not None
    assert (await world.keys.see(SYSTEM, key.key.id)).withdrawn_at is not None
    again = await world.person("ada")
    assert again.id != ada.id
    boss = await world.person("boss", operator=True, password=PASSWORD)
    with pytest.raises(InvalidRequest, match="operator first"):
        await world.profile.close(boss, PASSWORD, SessionClient())
