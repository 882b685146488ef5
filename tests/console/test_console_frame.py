"""Rules for every page of the console: origins of forms, cookies, headers, files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from accountkit import PASSWORD, World
from consolekit import Place, ScriptedServiceView, Visitor, console_of

from causerie.access.allowed import AccessRule
from causerie.hosted.accounts.people import SYSTEM, User, actor_of
from causerie.hosted.accounts.records import AuditFilter
from causerie.hosted.console.request_context import Site
from causerie.hosted.console.routes import ROUTES
from causerie.http.exchange import Exchange

_ENTRIES = re.compile(
    r"/operator/(aliases|catalog|models|doors|policies|explain)\b"
)  # of a service with operations


async def test_a_visitor_is_led_to_sign_in_and_back(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=user)
    visitor = place.visitor()
    asked = await visitor.get(f"/projects/{project.id}/keys")
    assert asked.status == 303
    assert asked.target == f"/sign-in?next=/console/projects/{project.id}/keys"
    form = await visitor.get(asked.target)
    assert f'value="/console/projects/{project.id}/keys"' in form.text
    entered = await visitor.post(
        "/sign-in",
        {"email": user.email, "password": PASSWORD, "next": f"/console/projects/{project.id}/keys"},
    )
    assert (entered.status, entered.target) == (303, f"/projects/{project.id}/keys")
    assert (await visitor.get(entered.target)).status == 200


async def test_who_is_led_to_sign_in_comes_back_to_the_very_page(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    base = f"/projects/{(await place.world.project(owner=user)).id}"
    visitor = place.visitor()
    asked = await visitor.get(f"{base}/usage?range=30d&by=key")
    assert asked.target == f"/sign-in?next=/console{base}/usage%3Frange%3D30d%26by%3Dkey"
    await visitor.get(asked.target)
    back = f"/console{base}/usage?range=30d&by=key"
    entered = await visitor.post(
        "/sign-in", {"email": user.email, "password": PASSWORD, "next": back}
    )
    assert entered.target == f"{base}/usage?range=30d&by=key"


async def test_pages_of_no_project_lead_to_the_one_that_was_open_last(place: Place) -> None:
    user = await place.world.person(operator=True)
    first, second = [
        await place.world.projects.create(SYSTEM, name, owner=user.id) for name in "AB"
    ]
    visitor = await place.visitor_of(user)
    for last, led in (("", first), (second.id, second), ("prj_other", first)):
        visitor.cookies["causerie-project"] = last  # as static/site.js notes it
        assert (await visitor.get("/")).target == f"/projects/{led.id}/overview"
        assert f'href="/console/projects/{led.id}/usage"' in (await visitor.get("/operator")).text


@pytest.mark.parametrize(
    ("path", "method"),
    [("/models/states", "get"), ("/keys/new", "get"), ("/keys/key/delete", "post")],
)
async def test_a_part_that_a_script_fetches_is_not_what_signing_in_leads_to(
    place: Place, path: str, method: str
) -> None:
    base = f"/projects/{(await place.world.project(owner=await place.world.person())).id}"
    visitor = place.visitor()
    await visitor.get("/sign-in")
    here = f"http://127.0.0.1:{place.port}/console{base}/models?find=a#top"
    ask = getattr(visitor, method)
    page = await ask(f"{base}{path}", headers={"hx-request": "true", "hx-current-url": here})
    said = "done=nothing-changed&" if method == "post" else ""
    assert page.headers["hx-redirect"] == (
        f"/console/sign-in?{said}next=/console{base}/models%3Ffind%3Da"
    )


async def test_a_page_is_painted_when_its_last_row_is_read(place: Place) -> None:
    page = (await place.visitor().get("/sign-in")).text
    assert '<link rel="expect" href="#whole" blocking="render">' in page.partition("</head>")[0]
    assert page.split()[-4:] == ['id="whole"', "hidden></div>", "</body>", "</html>"]
    assert page.count('id="whole"') == 1


@pytest.mark.parametrize(
    "next", ["https://evil.example/", "//evil.example", "/console/\\evil", "/console//evil.example"]
)
async def test_signing_in_leads_nowhere_else(place: Place, next: str) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = place.visitor()
    await visitor.get("/sign-in")
    entered = await visitor.post(
        "/sign-in", {"email": user.email, "password": PASSWORD, "next": next}
    )
    assert entered.headers["location"] == "/console/"


async def test_the_token_is_another_one_after_signing_in(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = place.visitor()
    await visitor.get("/sign-in")
    before, form = visitor.cookies["causerie"], visitor.form_token
    await visitor.sign_in(user)
    assert visitor.cookies["causerie"] != before
    assert visitor.form_token != form
    thief = Visitor(place.port, {"causerie": before})
    assert (await thief.get("/profile")).status == 303


async def test_a_session_that_was_open_ends_when_somebody_signs_in(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    old = Visitor(place.port, dict(visitor.cookies))
    await visitor.post("/sign-out")
    assert (await old.get("/profile")).status == 303
    assert (await visitor.get("/profile")).status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ""},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_forms_of_other_sites_change_nothing(place: Place, headers: dict[str, str]) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    refused = await visitor.post("/profile/name", {"name": "Mallory"}, headers)
    assert refused.status == 403
    assert "nothing was changed" in refused.text
    assert "Mallory" not in (await visitor.get("/profile")).text


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
async def test_a_form_without_its_token_changes_nothing(place: Place, token: str) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    refused = await visitor.post("/profile/name", {"name": "Mallory", "form_token": token})
    assert refused.status == 403
    assert "Mallory" not in (await visitor.get("/profile")).text


async def test_the_token_of_another_session_does_not_fit(place: Place) -> None:
    mine = await place.visitor_of(await place.world.person(password=PASSWORD))
    theirs = await place.visitor_of(await place.world.person(password=PASSWORD))
    refused = await mine.post("/profile/name", {"name": "M", "form_token": theirs.form_token})
    assert refused.status == 403


async def test_what_is_typed_while_a_session_ends_comes_back(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    project = await place.world.project(owner=user)
    path = f"/projects/{project.id}/keys/new"
    visitor = await place.visitor_of(user)
    typed = [("name", 'Batch "<b>'), ("end", "7"), ("budget_amount", "12.5")]
    typed += [("budget_unit", "money"), ("budget_period", "day"), ("budget_model", "")]
    async with place.world.store.writing() as repositories:
        await repositories.sessions.end_all(user.id)
    kept = await visitor.post(path, typed)
    assert (kept.status, kept.headers["cache-control"]) == (401, "no-store")
    assert "Nothing was changed" in kept.text
    assert typed == [each for each in kept.fields if each[0] != "form_token"]
    early = await visitor.post(path, kept.fields)
    assert early.status == 401
    assert typed == [each for each in early.fields if each[0] != "form_token"]

    await visitor.sign_in(user)  # in another tab; and then this one goes on
    form = await visitor.post(path, kept.fields)
    assert form.status == 403
    assert "nothing was changed yet" in form.text
    assert set(typed) <= set(form.fields)
    assert not await place.world.keys.of(actor_of(user), project.id)
    made = await visitor.post(path, form.fields)
    assert made.status == 200
    (key,) = await place.world.keys.of(actor_of(user), project.id)
    assert (key.name, key.bounds.budgets[0].amount) == ('Batch "<b>', Decimal("12.5"))


async def test_a_password_typed_while_a_session_ends_does_not_come_back(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    async with place.world.store.writing() as repositories:
        await repositories.sessions.end_all(user.id)
    refused = await visitor.post("/profile/password", {"old": PASSWORD, "password": "x" * 12})
    assert refused.status == 303
    page = await visitor.get(refused.target)
    assert "Your session has ended, so nothing was changed." in page.text
    assert PASSWORD not in page.text


async def test_what_comes_back_has_changed_nothing_and_is_no_secret(place: Place) -> None:
    """Of each form that is kept: the token of another session only brings it back."""
    user = await place.world.person(password=PASSWORD, operator=True)
    project = await place.world.project(owner=user)
    key = (await place.world.key(project, user)).key
    visitor = await place.visitor_of(user)
    fields = {"name": "Mallory", "role": "member", "end": "never", "form_token": "0" * 64}

    async def said() -> int:
        actor = actor_of(user)
        return len(await place.world.projects.audit(actor, None, AuditFilter(limit=500)))

    before = await said()
    for route in (each for each in ROUTES if each.kept and not _ENTRIES.match(each.path)):
        path = route.path.format(project=project.id, key=key.id, user=user.id)
        page = await visitor.post(path, fields)
        assert (route.method, page.status) == ("POST", 403), path
        assert "nothing was changed yet" in page.text, path
        forms = re.findall(r"(?s)<form [^>]*>.*?</form>", page.text)
        (form,) = [each for each in forms if f'action="/console{path}"' in each]
        assert page.form_token in form
        assert not re.search(r'type="password"|name="(code|token|secret)"', form), path
    assert await said() == before


async def test_signing_in_itself_needs_the_token(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = place.visitor()
    fields = {"email": user.email, "password": PASSWORD}
    refused = await visitor.post("/sign-in", fields)
    assert refused.status == 403


async def test_a_cookie_is_kept_from_scripts_and_other_sites(lite: World) -> None:
    async with console_of(lite) as place:
        page = await place.visitor().get("/sign-in")
        assert re.fullmatch(
            r"causerie=[A-Za-z0-9]{43}; Path=/; HttpOnly; SameSite=Lax",
            page.headers["set-cookie"],
        )
        behind = await place.visitor().get("/sign-in", {"x-forwarded-proto": "https"})
        assert behind.headers["set-cookie"].startswith("__Host-causerie=")
        assert behind.headers["set-cookie"].endswith("; HttpOnly; SameSite=Lax; Secure")


async def test_a_session_cookie_lives_as_long_as_its_session(lite: World) -> None:
    user = await lite.person(password=PASSWORD)
    async with console_of(lite, Site("https://llm.example")) as place:
        visitor = place.visitor()
        await visitor.get("/sign-in")
        page = await visitor.post(
            "/sign-in",
            {"email": user.email, "password": PASSWORD},
            {"origin": "https://llm.example"},
        )
        assert page.status == 303
        assert page.headers["set-cookie"].endswith(
            f"; Path=/; Max-Age={30 * 24 * 3600}; HttpOnly; SameSite=Lax; Secure"
        )
        refused = await visitor.post("/sign-in", {"email": "a", "password": "b"})
        assert refused.status == 403  # by the address of the machine, not the public one


async def test_pages_may_run_nothing_but_our_files(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = await place.visitor_of(user)
    for path in ("/sign-in", "/profile", "/nowhere", "/link"):
        page = await visitor.get(path)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["referrer-policy"] == "same-origin"
        if page.text:
            assert page.headers["cache-control"] == "no-store"
            assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=", page.text)


async def test_files_are_named_by_their_content_and_kept(place: Place) -> None:
    visitor = place.visitor()
    page = await visitor.get("/catalog")
    addresses = re.findall(r'(?:src|href)="/console(/static/[^"]+)"', page.text)
    assert len(addresses) >= 5
    for address in addresses:
        file = await visitor.get(address)
        assert file.status == 200, address
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert "set-cookie" not in file.headers
        again = await visitor.get(address, {"if-none-match": file.headers["etag"]})
        assert (again.status, again.text) == (304, "")
    assert (await visitor.ask("GET", "/static/../pages/keys.py")).status == 404
    assert (await visitor.ask("GET", "/static/console.css")).status == 404


async def test_guessing_passwords_is_slowed_down(place: Place) -> None:
    user = await place.world.person(password=PASSWORD)
    visitor = place.visitor()
    await visitor.get("/sign-in")
    for _ in range(5):
        page = await visitor.post("/sign-in", {"email": user.email, "password": "wrong"})
        assert page.status == 401
        assert "Address or password is wrong" in page.text
    page = await visitor.post("/sign-in", {"email": user.email, "password": PASSWORD})
    assert page.status == 429
    assert int(page.headers["retry-after"]) >= 1


async def test_who_cannot_be_known_has_another_count(lite: World) -> None:
    """A proxy's word counts where it is trusted, and nobody else's."""
    user = await lite.person(password=PASSWORD)
    async with console_of(lite) as place:
        visitor = place.visitor()
        await visitor.get("/sign-in")
        for number in range(5):
            spoofed = {"x-forwarded-for": f"192.0.2.{number}"}
            await visitor.post("/sign-in", {"email": user.email, "password": "no"}, spoofed)
        page = await visitor.post("/sign-in", {"email": user.email, "password": PASSWORD})
        assert page.status == 429


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7:51234", "203.0.113.7"),
        ("203.0.113.7:51234, 127.0.0.2:80", "203.0.113.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]:51234", "2001:db8::7"),
        ("unknown", "unknown"),
        ("", "127.0.0.1"),
    ],
)
async def test_a_trusted_proxy_says_where_somebody_comes_from(
    lite: World, said: str, address: str
) -> None:
    """Some write the port behind it, another for each connection: that is nobody else."""
    user = await lite.person(password=PASSWORD)
    async with console_of(lite, Site(proxies=(ip_network("127.0.0.0/8"),))) as place:
        visitor = place.visitor()
        visitor.extra["x-forwarded-for"] = said
        assert (await visitor.sign_in(user)).status == 303
    [session] = await lite.sign_in.sessions(user)
    assert session.address == address


async def test_forms_are_bounded(place: Place) -> None:
    visitor = place.visitor()
    await visitor.get("/sign-in")
    many = [(f"f{number}", "") for number in range(1000)]
    assert (await visitor.post("/sign-in", many)).status == 400
    zero = await visitor.post("/sign-in", {"email": "a\0b", "password": "x"})
    assert zero.status == 400
    json = await visitor.post("/sign-in", {}, {"content-type": "application/json"})
    assert json.status in (403, 415)


async def test_other_methods_and_paths(place: Place) -> None:
    visitor = await place.visitor_of(await place.world.person(password=PASSWORD))
    missing = await visitor.get("/nowhere")
    assert (missing.status, "There is no such page" in missing.text) == (404, True)
    wrong = await visitor.ask("DELETE", "/profile")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")
    assert (await visitor.ask("HEAD", "/profile")).text == ""


async def test_a_script_is_led_by_a_header(place: Place) -> None:
    visitor = place.visitor()
    page = await visitor.get("/profile", {"hx-request": "true"})
    assert page.status == 204
    assert page.headers["hx-redirect"].startswith("/console/sign-in")


async def test_a_page_that_there_is_not_stands_in_the_frame_of_who_has_signed_in(
    place: Place,
) -> None:
    visitor = await place.visitor_of(await place.world.person(password=PASSWORD))
    page = await visitor.get("/no-such-page")
    assert page.status == 404
    assert "There is no such page." in page.text
    assert 'action="/console/sign-out"' in page.text
    assert 'action="/console/sign-out"' not in (await place.visitor().get("/no-such-page")).text


async def test_a_bug_is_a_page_for_people_and_json_for_scripts(lite: World) -> None:
    service_view = Faulty()
    user = await lite.person(password=PASSWORD)
    project = await lite.project(owner=user)
    async with console_of(lite, service_view=service_view) as place:
        visitor = await place.visitor_of(user)
        page = await visitor.get(f"/projects/{project.id}/playground")
        assert page.status == 500
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["content-security-policy"]
        assert "Something went wrong on our side" in page.text
        assert page.headers["x-request-id"] in page.text
        assert "secret of the bug" not in page.text
        headers = {"content-type": "application/json", "x-form-token": visitor.form_token}
        told = await visitor.post(f"/projects/{project.id}/playground", headers=headers)
        assert told.status == 500
        assert msgspec.json.decode(told.text)["error"]["code"] == "internal_error"
        assert (await visitor.get("/profile")).status == 200


class Faulty(ScriptedServiceView):
    """A service with a bug."""

    def models(
        self, door: str | None = None, rules: Sequence[AccessRule] = ()
    ) -> Sequence[Mapping[str, Any]]:
        raise RuntimeError("secret of the bug")

    async def complete(
        self, exchange: Exchange, user: User, project_id: str, *, routed: bool = False
    ) -> None:
        raise RuntimeError("secret of the bug")


async def test_a_forged_host_is_believed_by_nobody_where_the_address_is_known(lite: World) -> None:
    owner = await lite.person(password=PASSWORD)
    project = await lite.project(owner=owner)
    site = Site("https://llm.example")
    async with console_of(lite, site) as place:
        visitor = await place.visitor_of(owner)
        visitor.cookies["__Host-causerie"] = visitor.cookies["causerie"]
        path, fields = f"/projects/{project.id}/invite", {"role": "member"}
        visitor.extra["host"] = "evil.example"
        assert (await visitor.get("/profile")).status == 404
        assert (await visitor.post(path, fields, {"origin": "https://evil.example"})).status == 404
        visitor.extra["host"] = "llm.example"
        await visitor.get("/profile")
        forged = await visitor.post(path, fields, {"origin": "https://evil.example"})
        assert forged.status == 403
        made = await visitor.post(path, fields, {"origin": "https://llm.example"})
        assert made.status == 200
        assert "https://llm.example/console/link#" in made.text
        assert "evil.example" not in made.text
