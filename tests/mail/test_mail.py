"""Letters, to a real SMTP server; and sign-up, which tells nobody but an address's holder."""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from accountkit import PASSWORD, World
from casekit import each_of
from certificates import Certificates
from consolekit import Place, console_of
from smtpserver import LOGIN, Mailbox, smtp, text_of
from structlog.testing import capture_logs

from causerie.hosted.accounts.people import SYSTEM, Role, actor_of
from causerie.http.tasks import owned
from causerie.observe.mail import Letter, MailServer, Outbox, in_thread

LETTER = Letter("ada@example.org", "Grüße", "A text with a line\n.and a dot.\n")


def trusted(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    return context


@asynccontextmanager
async def outbox(box: Mailbox, **server: object) -> AsyncIterator[Outbox]:
    options = {"host": "127.0.0.1", "port": box.port, "sender": "causerie@example.org"}
    made = Outbox(MailServer(**{**options, "tls": "off", **server}), retry_seconds=0.01)  # type: ignore[arg-type]  # fields by name
    async with owned(made.deliver()):
        yield made


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_a_letter_goes_over_tls_with_a_password(certificates: Certificates, tls: str) -> None:
    user, password = LOGIN
    async with (
        smtp(trusted(certificates), implicit=tls == "implicit") as box,
        outbox(box, tls=tls, user=user, password=password, ca_file=str(certificates.ca)) as out,
    ):
        out.send(LETTER)
        came = await box.letter()
        assert (came["To"], came["From"], came["Subject"]) == (
            *("ada@example.org", "causerie@example.org", "Grüße"),
        )
        assert came.get_content().replace("\r\n", "\n") == LETTER.text
        assert box.authenticated == [True]


@pytest.mark.parametrize("case", ["a stranger's certificate", "no TLS offered"])
async def test_where_tls_fails_nothing_is_sent(
    certificates: Certificates, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trust = trusted(certificates) if case == "a stranger's certificate" else None
    async with smtp(trust) as box, outbox(box, tls="starttls") as out:
        await out._send_letter_with_retries(LETTER)
        assert box.letters.empty()
        assert box.asked == 0
    said = capsys.readouterr()
    assert "mail.not_sent" in said.out + said.err
    assert "ada@" not in said.out + said.err


@each_of(
    "to",
    [
        "eve@example.org,ada@example.org",
        "eve@example.org;ada@example.org",
        "all:eve@example.org,ada@example.org;",
        "eve@example.org (ada@example.org)",
        "Eve <eve@example.org>",
        "eve@example.org\nbcc: ada@example.org",
    ],
)
async def test_a_letter_goes_to_one_recipient_or_none(to: str) -> None:
    async with smtp() as box, outbox(box) as out:
        await out._send_letter_with_retries(Letter(to, "Subject", "Text"))
        assert (box.recipients, box.letters.empty()) == ([], True)
        await out._send_letter_with_retries(LETTER)
        assert box.recipients == ["ada@example.org"]


async def test_a_letter_is_tried_again_where_the_server_is_busy() -> None:
    async with smtp() as box, outbox(box) as out:
        box.refuses = ["451 later"]
        out.send(LETTER)
        out.send(LETTER)
        assert (await box.letter())["Subject"] == "Grüße"


@asynccontextmanager
async def open_console(world: World, *, mail: bool) -> AsyncIterator[tuple[Place, Mailbox]]:
    async with smtp() as box, outbox(box) as out:
        sent = out if mail else None
        async with console_of(world, open_to_all=True, outbox=sent) as place:
            yield place, box


@pytest.mark.parametrize("mail", [True, False])
async def test_a_sign_up_does_not_tell_whether_an_address_has_an_account(
    lite: World, mail: bool
) -> None:
    await lite.person("ada", password=PASSWORD)
    async with open_console(lite, mail=mail) as (place, box):
        answers = []
        for name in ("ada", "eve"):
            visitor = place.visitor()
            await visitor.get("/sign-up")
            answer = await visitor.post("/sign-up", {"email": f"{name}@example.org"})
            text = re.sub('form.token" (content|value)="[^"]*"', "", answer.text)
            headers = {
                key: value
                for key, value in answer.headers.items()
                if key not in ("set-cookie", "date", "content-length", "x-request-id")
            }
            answers.append((answer.status, headers, text.replace(f"{name}@example.org", "X")))
        assert answers[0][0] == answers[1][0] == 200
        assert answers[0][1] == answers[1][1]
        one, other = (each[2].splitlines() for each in answers)
        assert [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]] == []
        if mail:
            letters = {each["To"]: each for each in [await box.letter(), await box.letter()]}
            known = text_of(letters["ada@example.org"])
            assert "There is one already" in known
            assert "/console/link#" not in known
            new = text_of(letters["eve@example.org"])
            assert "/console/link#" in new


async def test_the_link_in_a_letter_makes_an_account_with_a_project(lite: World) -> None:
    async with open_console(lite, mail=True) as (place, box):
        visitor = place.visitor()
        await visitor.get("/sign-up")
        await visitor.post("/sign-up", {"email": "eve@example.org"})
        found = re.search(r"/console/link#(\w+)", text_of(await box.letter()))
        assert found
        fields = {"token": found[1], "name": "Eve", "password": PASSWORD}
        entered = await visitor.post("/link/account", fields)
        assert (entered.status, entered.target) == (303, "/")
        assert re.fullmatch("/projects/prj_[^/]+/overview", (await visitor.get("/")).target)
        assert (await visitor.get("/operator/projects")).status == 403


async def test_without_mail_an_operator_gives_the_link(lite: World) -> None:
    operator = await lite.person("boss", operator=True)
    async with open_console(lite, mail=False) as (place, _):
        visitor = place.visitor()
        await visitor.get("/sign-up")
        for email in ("eve@example.org", "boss@example.org", "eve@example.org"):
            assert (await visitor.post("/sign-up", {"email": email})).status == 200
        boss = await place.visitor_of(operator)
        users = (await boss.get("/operator/users")).text
        [path] = re.findall('action="/console(/operator/sign-ups/[^"]+/approve)"', users)
        shown = await boss.post(path)
        assert "eve@example.org" in shown.text
        found = re.search(r"/console/link#(\w+)", shown.text)
        assert found
        assert (await boss.post(path)).status == 404
        user = await lite.users.accept(
            found[1], email="eve@example.org", name="Eve", password=PASSWORD
        )
        assert len(await lite.projects.of(user)) == 1
        assert await lite.sign_ups.asked(SYSTEM) == []


async def test_one_address_gets_few_letters(lite: World) -> None:
    async with open_console(lite, mail=True) as (place, _):
        visitor = place.visitor()
        await visitor.get("/sign-up")
        answers = [
            (await visitor.post("/sign-up", {"email": "eve@example.org"})).status for _ in range(4)
        ]
        assert answers == [200, 200, 200, 429]
        assert (await visitor.post("/sign-up", {"email": "nobody"})).status == 400


@pytest.mark.parametrize("email", ["ada@example.org", None])
async def test_an_invitation_does_not_tell_either(lite: World, email: str | None) -> None:
    """The person who created or found the link may not be the one who has the address."""
    await lite.person("ada", password=PASSWORD)
    owner = await lite.person()
    project = await lite.project(owner=owner)
    async with console_of(lite) as place:
        answers = []
        for name in ("ada", "eve"):
            given = email and f"{name}@example.org"
            made = await lite.projects.invite(actor_of(owner), project.id, Role.MEMBER, email=given)
            visitor = place.visitor()
            await visitor.get("/link")
            fields = {
                "email": f"{name}@example.org",
                "name": "X",
                "password": "seven red kites fly",
            }
            answer = await visitor.post("/link/account", fields | {"token": made.token})
            answers.append((answer.status, answer.target, answer.text))
        assert answers[0] == answers[1]
        assert answers[0][:2] == (303, "/sign-in?done=account-ready")


async def test_a_stop_leaves_a_letter_to_a_server_that_does_not_answer() -> None:
    came, left = asyncio.Event(), asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await left.wait()
        writer.close()

    listening = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    server = MailServer("127.0.0.1", port, "causerie@example.org", tls="off", seconds=300.0)
    out = Outbox(server, stop_seconds=0.01)
    async with listening, asyncio.timeout(60):  # less than the server's time-out
        with capture_logs() as said:
            async with owned(out.deliver()):
                out.send(LETTER)
                out.send(LETTER)
                await came.wait()
        threads = [each for each in threading.enumerate() if each.name == "letters"]
        assert [each.daemon for each in threads] == [True], "no end of a process waits for it"
        left.set()
        listening.close()
    assert [(each["event"], each["letters"]) for each in said] == [("mail.left", 2)]
    assert "ada@example.org" not in str(said)


async def test_what_ends_while_a_stop_waits_is_noted() -> None:
    begun, go_on = threading.Event(), threading.Event()
    noted: list[int] = []

    def work() -> int:
        begun.set()
        go_on.wait(60)
        return 7

    async def main() -> None:
        noted.append(await in_thread(work, 60))
        await asyncio.sleep(60)

    task = asyncio.create_task(main())
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert noted == [7]
