"""Names of clients' programs: cleaned, cut, and kept as nothing but a label."""

from __future__ import annotations

from casekit import each_of
from edgekit import ASK, ScriptedPipeline, call, make_edge

from causerie.http.head import Headers, labels_of
from causerie.protocol.request import UNLABELLED, Labels


def labels(**named: str) -> Labels:
    """Those of these headers, as their bytes come over the wire."""
    headers = Headers()
    for name, value in named.items():
        headers[name.replace("_", "-").lower()] = value.encode().decode("latin-1")
    return labels_of(headers)


@each_of(
    ("title", "app"),
    [
        ("My Robot", "My Robot"),
        ("  much\t  space ", "much space"),
        ("Gespräch 話", "Gespräch 話"),
        ("a\x1b[31mred\x00\x7f", "a [31mred"),
        ("safe\u202egnirts\u200b", "safe gnirts"),
        ("x" * 500, "x" * 80),
        ("y" * 79 + " z", "y" * 79),
        ("\x01\x02", ""),
    ],
)
def test_titles_are_made_readable(title: str, app: str) -> None:
    assert labels(x_title=title) == Labels(app)
    assert labels(X_OpenRouter_Title=title, x_title="older") == Labels(app)
    assert labels(X_Tag=title) == Labels(tag=app)


def test_what_is_no_utf_8_is_latin_1() -> None:
    assert labels_of(Headers({"x-title": "Gespräch"})) == Labels("Gespräch")


@each_of(
    ("referer", "app", "kept"),
    [
        ("https://robot.example", "robot.example", "https://robot.example"),
        ("https://Robot.example:8443/a/b", "robot.example", "https://robot.example:8443/a/b"),
        ("https://me:secret@r.example/?token=1#x", "r.example", "https://r.example/"),
        ("http://[::1]:3000/", "[::1]", "http://[::1]:3000/"),
        ("https://r.example/" + "p" * 500, "r.example", "https://r.example/" + "p" * 182),
        ("no address", "", ""),
        ("https://r.example:port/", "", ""),
        ("https://[broken/", "", ""),
        ("javascript:alert(1)", "", ""),
    ],
)
def test_addresses_say_no_more_than_where(referer: str, app: str, kept: str) -> None:
    assert labels(HTTP_Referer=referer) == Labels(app, kept)
    assert labels(HTTP_Referer=referer, x_title="Robot") == Labels("Robot", kept)


def test_without_headers_there_are_none() -> None:
    assert labels(referer="https://browser.example/page") is UNLABELLED


async def test_they_come_along_with_requests() -> None:
    pipeline = ScriptedPipeline()
    edge = make_edge(pipeline)
    named = {"X-Title": "Robot", "HTTP-Referer": "https://r.example/?q"}
    await call(edge, "/v1/chat/completions", ASK, headers=named)
    await call(edge, "/v1/chat/completions", ASK | {"stream": True}, headers=named)
    await call(edge, "/v1/chat/completions", ASK)
    robot = Labels("Robot", "https://r.example/")
    assert pipeline.labels == [robot, robot, UNLABELLED]
