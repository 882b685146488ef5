"""The public catalog over real HTTP: what is found, in which order; and nothing else is open."""

from __future__ import annotations

import asyncio
import gzip
import re
from dataclasses import replace
from html import unescape

from accountkit import PASSWORD, World
from casekit import each_of
from consolekit import Page, Place, console_of
from marketkit import (
    PLAIN,
    Fair,
    ScriptedMarket,
    card,
    endpoint,
    large_market,
    market_of,
    target_stats,
)
from msgspec import structs

from causerie.hosted.console.routes import ROUTES

LLAMA = "meta-llama/llama-3.1-405b-instruct"
OPEN = {
    *("/get-key", "/link/address", "/sign-in/forgotten"),
    "/",
    "/sign-in",
    "/sign-in/code",
    "/sign-in/{provider}",
    "/sign-in/{provider}/back",
    "/sign-out",
    "/link",
    "/link/account",
    "/link/with/{provider}",
    "/link/password",
    "/catalog",
    "/catalog/compare",
    "/catalog/{author}/{slug}",
    "/catalog/{author}/{slug}/chat",
    "/providers",
    "/providers/{provider}",
    "/logos/{name}",
    "/rankings",
    "/status",
    "/rankings.json",
}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 71 * 1907321 }}"


def ids(page: Page) -> list[str]:
    """The models of a list, in their order."""
    return re.findall(r'name="model" value="([^"]+)"', page.text)


async def find(place: Place, query: str) -> list[str]:
    page = await place.visitor().get(f"/catalog?{query}")
    assert page.status == 200, page.text
    return ids(page)


async def test_everybody_sees_every_model_and_gets_no_cookie(fair: Place) -> None:
    page = await fair.visitor().get("/catalog")
    assert page.status == 200
    assert ids(page) == [
        "acme/iris-large",
        LLAMA,
        "qwen/qwen3-8b",
        "zeta/mystery",
        "acme/old-timer",
    ]
    assert '<a class="badge badge-accent" href="/console/catalog/qwen/qwen3-8b:free">' in page.text
    assert "set-cookie" not in page.headers
    assert "form-token" not in page.text
    head = await fair.visitor().ask("HEAD", "/catalog")
    assert (head.status, head.text) == (200, "")
    assert "noindex" not in page.text
    assert 'name="description"' in page.text
    for text in ("Qwen3 8B", "$0.05", "$0.20", "Sees images.", "131k", "310 ms", "92"):
        assert text in page.text, text
    assert 'href="/console/sign-in"' in page.text


@each_of(
    ("query", "expected"),
    [
        ("q=QWEN", {"qwen/qwen3-8b"}),  # its variant is in the same row
        ("q=hundred+languages", {"qwen/qwen3-8b"}),
        ("q=acme", {"acme/iris-large", "acme/old-timer"}),
        ("q=nothing+at+all", set()),
        ("cost=free", {"qwen/qwen3-8b:free"}),
        (
            "cost=paid",
            {"qwen/qwen3-8b", "acme/iris-large", "acme/old-timer", "zeta/mystery", LLAMA},
        ),
        ("parameter=tools&parameter=reasoning", {"qwen/qwen3-8b", LLAMA}),
        ("parameter=no_such_thing", set()),
        ("takes=image", {"acme/iris-large", "qwen/qwen3-8b", LLAMA}),
        ("takes=audio", set()),
        ("gives=image", set()),
        ("context=128000", {"qwen/qwen3-8b", "acme/iris-large", LLAMA}),
        ("author=acme", {"acme/iris-large", "acme/old-timer"}),
        ("max=0.1", {"qwen/qwen3-8b"}),
        ("provider=north", {"qwen/qwen3-8b", "acme/iris-large"}),
        ("provider=nobody", set()),
        ("ending=ending", {"acme/old-timer"}),
        ("ending=staying&cost=free", {"qwen/qwen3-8b:free"}),
    ],
)
async def test_filters(fair: Place, query: str, expected: set[str]) -> None:
    assert set(await find(fair, query)) == expected


@each_of(
    ("sort", "first", "last"),
    [
        ("newest", "acme/iris-large", "acme/old-timer"),
        ("name", "acme/iris-large", "zeta/mystery"),
        ("price", "qwen/qwen3-8b", "acme/iris-large"),
        ("throughput", "qwen/qwen3-8b", "zeta/mystery"),
        ("latency", "qwen/qwen3-8b", "zeta/mystery"),
        ("context", "acme/iris-large", "zeta/mystery"),
    ],
)
async def test_sorts(fair: Place, sort: str, first: str, last: str) -> None:
    found = await find(fair, f"sort={sort}")
    assert (found[0], found[-1]) == (first, last)


@each_of(
    "query", ["sort=best", "max=dear", "max=-1", "context=long", "cost=some", "page=x", "max=NaN"]
)
async def test_what_is_not_understood_is_said(fair: Place, query: str) -> None:
    page = await fair.visitor().get(f"/catalog?{query}")
    assert page.status == 400
    assert 'role="alert"' in page.text
    assert ids(page) == []


async def test_a_script_gets_the_list_alone(fair: Place) -> None:
    page = await fair.visitor().get("/catalog?q=iris", {"hx-request": "true"})
    assert ids(page) == ["acme/iris-large"]
    assert "<html" not in page.text
    assert "<strong>1</strong> of 5 models" in page.text


async def test_what_is_empty_says_so(lite: World, fair: Place) -> None:
    nothing = await fair.visitor().get("/catalog?q=zz")
    assert "No models found" in nothing.text
    assert "Show all 5" in nothing.text
    assert "No such page" in (await fair.visitor().get("/catalog?page=9")).text
    async with console_of(lite, service_view=Fair(ScriptedMarket([]))) as place:
        assert "No models yet" in (await place.visitor().get("/catalog")).text


async def test_a_thousand_are_paged_and_counted_quickly(lite: World) -> None:
    async with console_of(lite, service_view=Fair(large_market(1000))) as place:
        visitor = place.visitor()
        page = await visitor.get("/catalog")
        assert "<strong>1,000</strong> models" in page.text
        assert "Page 1 of 40" in page.text
        seen = ids(page)
        while following := re.search(r'rel="next" href="/console([^"]+)"', page.text):
            page = await visitor.get(unescape(following[1]))
            seen += ids(page)
        assert len(seen) == len(set(seen)) == 1000
        narrowed = await visitor.get("/catalog?author=author-7&sort=price")
        assert len(ids(narrowed)) == 25


async def test_a_page_that_has_not_changed_is_not_sent_again(fair: Place) -> None:
    visitor = fair.visitor()
    first = await visitor.get("/catalog")
    again = await visitor.get("/catalog", {"if-none-match": first.headers["etag"]})
    assert (again.status, again.text) == (304, "")
    assert again.headers["content-length"] == first.headers["content-length"]
    market_of(fair).figures["north/iris"] = target_stats(9.0, 1.0)
    changed = await visitor.get("/catalog", {"if-none-match": first.headers["etag"]})
    assert changed.status == 200
    assert "9.0 s" in changed.text


async def test_pages_are_gzip_where_nobody_else_chose_what_a_member_asks(fair: Place) -> None:
    async def raw(path: str, cookie: str = "") -> tuple[str, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", fair.port)
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: gzip\r\n"
        writer.write(f"{head}{cookie}\r\n".encode())
        text = await reader.read()
        writer.close()
        await writer.wait_closed()
        top, _, body = text.partition(b"\r\n\r\n")
        return top.decode().lower(), body

    head, body = await raw("/console/catalog")
    assert "content-encoding: gzip" in head
    page = gzip.decompress(body).decode()
    assert "Iris Large" in page
    style = re.search(r'href="(/console/static/console[^"]+)"', page)
    assert style is not None
    head, body = await raw(style[1])
    assert "content-encoding: gzip" in head
    assert "vary: accept-encoding" in head
    assert b":root" in gzip.decompress(body)
    visitor = await fair.visitor_of(await fair.world.person(password=PASSWORD))
    cookie = f"cookie: causerie={visitor.cookies['causerie']}\r\n"
    tokens = set()
    for mode, site, small in (
        ("navigate", "same-origin", True),
        ("navigate", "none", True),
        ("navigate", "same-site", False),
        ("navigate", "cross-site", False),
        ("cors", "same-origin", False),
        ("", "", False),
    ):
        stated = f"sec-fetch-mode: {mode}\r\nsec-fetch-site: {site}\r\n" if mode else ""
        for path in ("/console/catalog", "/console/profile"):
            head, body = await raw(path, cookie + stated)
            assert ("content-encoding: gzip" in head) == small, (mode, site)
            assert "no-store" in head
            page = (gzip.decompress(body) if small else body).decode()
            tokens |= set(re.findall(r'name="form-token" content="(\w{64})"', page))
    assert len(tokens) == 12  # of each answer another one
    stated = "sec-fetch-mode: navigate\r\nsec-fetch-site: same-origin\r\n"
    head, _ = await raw("/console/no-such-page", cookie + stated)
    assert "content-encoding" not in head


async def test_who_has_signed_in_sees_it_in_the_frame(fair: Place) -> None:
    visitor = await fair.visitor_of(await fair.world.person(password=PASSWORD))
    page = await visitor.get("/catalog")
    assert re.search(r'href="/console/catalog" aria-current="page"', page.text)
    assert "Sign out" in page.text
    assert len(ids(page)) == 5


async def test_what_is_claimed_and_what_is_unknown_looks_so(fair: Place) -> None:
    listed = (await fair.visitor().get("/catalog")).text
    assert "abilities not known" in listed
    assert 'can-claimed" title="Claimed by the provider, not measured">images' in listed
    both = f"model=qwen/qwen3-8b&model={LLAMA}&model=zeta/mystery"
    compared = (await fair.visitor().get(f"/catalog/compare?{both}")).text
    by_all = compared.partition("Parameters supported by all")[2]
    assert ">tools<" not in by_all  # nobody knows it of the third
    cells = re.search(r"<code>tools</code></th>(.*?)</tr>", compared)
    assert cells is not None
    assert re.findall(r"answer-(\w+)", cells[1]) == ["yes", "claimed", "unknown"]
    assert compared.count("answer-unknown") > 4
    quiet = (await fair.visitor().get("/catalog/zeta/mystery")).text
    assert "Neither measured nor claimed by the provider" in quiet
    assert not re.search(r'class="chip[^"]*"', quiet)


async def test_the_headline_is_of_one_endpoint(fair: Place) -> None:
    """The one that gets the most requests, as long as it is neither down nor degraded."""
    market, by = market_of(fair), r"These are the figures of (\w+),"
    tiles = r'<dl class="tiles tiles-close">.*?</dl>'
    page = (await fair.visitor().get("/catalog/qwen/qwen3-8b")).text
    found = re.search(tiles, page, re.DOTALL)
    assert found is not None
    assert re.findall(by, page) == ["north"]
    for text in ("$0.05", "310 ms", ">92<"):
        assert text in found[0], text
    assert "from" not in found[0].partition("Output")[0]  # south's input costs less
    assert "from" in found[0].partition("Output")[2]
    ill = structs.replace(market.figures["north/Qwen/Qwen3-8B"], degraded=True)
    market.figures = {**market.figures, "north/Qwen/Qwen3-8B": ill}
    page = (await fair.visitor().get("/catalog/qwen/qwen3-8b")).text
    found = re.search(tiles, page, re.DOTALL)
    assert found is not None
    assert re.findall(by, page) == ["south"]
    assert "$0.04" in found[0]
    assert "920 ms" in found[0]
    assert "cheaper" in page
    assert ">degraded<" in page


async def test_the_status_page(fair: Place) -> None:
    page = await fair.visitor().get("/status")
    assert page.status == 200
    assert "2 of 5 providers have trouble now" in page.text
    assert page.text.count('class="day-') == 5 * 90
    assert re.search(r">\d\d \w{3} \d{4}: 99.80 % of 1,002 requests<", page.text)
    assert 'href="/console/status"' in (await fair.visitor().get("/catalog")).text


async def test_the_page_of_a_model(fair: Place) -> None:
    page = await fair.visitor().get("/catalog/qwen/qwen3-8b")
    assert page.status == 200
    for text in (
        "3 endpoints", "measured", "9 parameters claimed, none measured", "zero data retention",
        "$0.0125", "99.80 %", "/router/v1", "openrouter/sdk", "fp8", "of 80 answered",
        "Time to first token", "polyline",
    ):  # fmt: skip
        assert text in page.text, text
    assert 'href="/console/catalog/qwen/qwen3-8b:free"' in page.text
    free = await fair.visitor().get("/catalog/qwen/qwen3-8b:free")
    assert "Qwen3 8B (free)" in free.text
    assert "Not measured yet" in free.text
    fast = await fair.visitor().get("/catalog/qwen/qwen3-8b:nitro")
    assert "tries the fastest endpoint first" in fast.text
    assert "qwen/qwen3-8b:nitro" in fast.code("code-chat-curl")
    mystery = await fair.visitor().get("/catalog/zeta/mystery")
    assert "all parameters are allowed" in mystery.text
    assert "logprobs" not in mystery.text
    assert '<span class="badge">' not in mystery.text
    old = await fair.visitor().get("/catalog/acme/old-timer")
    assert "its last day here is 1 Jan 2999" in old.text


@each_of("path", ["acme/none", "acme/iris-large:none", "x/y", "acme%2Firis-large/"])
async def test_a_model_that_is_not_there(fair: Place, path: str) -> None:
    page = await fair.visitor().get(f"/catalog/{path}")
    assert page.status == 404
    assert (await fair.visitor().get(f"/catalog/compare?model={path}")).status == 404


async def test_costs_are_what_is_charged(fair: Place) -> None:
    query = "in=1000&cached=400&out=500&requests=1000000"
    page = await fair.visitor().get(f"/catalog/qwen/qwen3-8b?{query}", {"hx-request": "true"})
    assert "<html" not in page.text
    rows = [
        tuple(re.findall(r'title="([^"]+)"|>(free)<', row)) for row in page.text.split("<tr>")[2:]
    ]
    said = [[a or b for a, b in row] for row in rows]
    assert said == [
        ["causerie/qwen3-8b-here", "free", "free"],
        ["north/Qwen/Qwen3-8B", "$0.000135", "$135.00"],  # 600 × 0.05 + 400 × 0.0125 + 500 × 0.20
        ["south/m", "$0.000165", "$165.00"],
        ["west/m", "$0.000165", "$165.00"],
    ]
    query = "in=1000&out=500&thinking=100&requests=2"
    thinks = await fair.visitor().get(f"/catalog/acme/iris-large?{query}")
    assert 'name="thinking"' in thinks.text
    assert '"$0.007"' in thinks.text  # 1000 × 2.50 + 400 × 10 + 100 × 5
    assert '"$0.014"' in thinks.text
    fee = await fair.visitor().get("/catalog/acme/old-timer?in=1&out=1&requests=3")
    assert "$0.0020002" in fee.text
    assert "$0.0060006" in fee.text


@each_of(
    "query",
    ["in=x", "out=-1", "requests=1.5", "in=1&cached=2", "out=1&thinking=2", "in=9999999999"],
)
async def test_numbers_that_are_none_are_said(fair: Place, query: str) -> None:
    page = await fair.visitor().get(f"/catalog/qwen/qwen3-8b?{query}")
    assert page.status == 400
    assert 'role="alert"' in page.text


async def test_models_side_by_side(fair: Place) -> None:
    both = "model=qwen/qwen3-8b&model=acme/iris-large"
    page = await fair.visitor().get(f"/catalog/compare?{both}&model=qwen/qwen3-8b")
    assert page.text.count('<th scope="col">') == 2
    prices = re.search(
        r">Input</th><td class=\"ahead\"><span class=\"price\" title=\"\$0.05\".*?\$2.50", page.text
    )
    assert prices, page.text
    assert re.search(r">Context</th><td>.*?131k.*?<td class=\"ahead\">.*?1.0M", page.text)
    one = await fair.visitor().get("/catalog/compare?model=qwen/qwen3-8b")
    assert "Choose one more" in one.text
    assert "Nothing to compare yet" in (await fair.visitor().get("/catalog/compare")).text


async def test_at_most_four_fit_side_by_side(lite: World) -> None:
    async with console_of(lite, service_view=Fair(large_market(6))) as place:
        query = "&".join(f"model=author-{n}/model-{n}" for n in range(6))
        page = await place.visitor().get(f"/catalog/compare?{query}")
        assert page.text.count('<th scope="col">') == 4
        assert "2 more were left out" in page.text


async def test_markup_in_words_stays_text(lite: World) -> None:
    described = card("a/b", HOSTILE, HOSTILE)
    market = ScriptedMarket([(described, [endpoint("p", "1", "2", parameters=PLAIN)], None)])
    market.cards = [*market.cards, (replace(described, id="a/c"), market.cards[0][1], None)]
    async with console_of(lite, service_view=Fair(market)) as place:
        for path in (
            "/catalog", "/catalog/a/b", "/catalog/compare?model=a/b&model=a/c",
            "/catalog?q=%3Cscript%3Ealert(1)%3C/script%3E%22%27",
            "/catalog/a/b?in=%3Cscript%3Ealert(1)%3C/script%3E",
            "/catalog/%3Cscript%3Ealert(1)/x",
            "/catalog/compare?model=%3Cscript%3Ealert(1)%3C/script%3E",
        ):  # fmt: skip
            page = await place.visitor().get(path)
            assert "<script>alert" not in page.text, path
            assert "<img" not in page.text, path
            assert "135419791" not in page.text, path


async def test_without_a_routers_door_there_is_no_catalog(fair: Place) -> None:
    assert isinstance(fair.service_view, Fair)
    fair.service_view.fair = None
    visitor = await fair.visitor_of(await fair.world.person(password=PASSWORD))
    for path in ("/catalog", "/catalog/compare", "/catalog/qwen/qwen3-8b"):
        for who in (fair.visitor(), visitor):
            page = await who.get(path)
            assert page.status == 404
            assert "There is no such page" in page.text
    assert "/console/catalog" not in (await fair.visitor().get("/sign-in")).text
    assert "/console/catalog" not in (await visitor.get("/profile")).text


async def test_signing_in_leads_to_the_catalog_and_back(fair: Place) -> None:
    assert 'href="/console/catalog"' in (await fair.visitor().get("/sign-in")).text


async def test_nothing_else_is_open(fair: Place) -> None:
    assert {route.path for route in ROUTES if route.open} == OPEN
    for route in ROUTES:
        if route.method != "GET" or route.open:
            continue
        path = re.sub(r"\{\w+\}", "x", route.path)
        page = await fair.visitor().get(path)
        assert (page.status, page.target.partition("?")[0]) == (303, "/sign-in"), path
