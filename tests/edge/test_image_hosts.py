"""Hosts of images: no spelling of one that lies inside a network reaches a provider."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from casekit import each_of
from faultkit import Reply, upstream
from gatewaykit import gateway
from hypothesis import given
from hypothesis import strategies as st
from servicekit import service_view

from causerie.errors import InvalidRequest
from causerie.http.addresses import NO_INSIDE_HOSTS, InsideHosts, host_refusal
from causerie.protocol.parameters import ParsingRules
from causerie.providers.dialects import DIALECTS
from causerie.providers.outgoing import outgoing
from causerie.shapes.chat_completions.reader import parse

OPENAI = DIALECTS["openai"]
AT = "messages[0].content[1].image_url.url"
GOOD = [
    "example.org", "a.b.example.org:8443", "EXAMPLE.org", "example.org.", "1and1.example.com",
    "a_b.s3.amazonaws.com", "xn--bcher-kva.example.org", "93.184.216.34", "93.184.216.34.",
    "[2606:2800:220:1:248:1893:25c8:1946]", "[2606:2800:220::]:443", "cdn.images.internals.org",
    "local.example.org", "0x7f.example.org", "127.0.0.1.example.org", "example.xn--p1ai",
]  # fmt: skip
BAD = [
    # by name
    "localhost", "localhost.", "LOCALHOST", "a.localhost", "db", "db.", "printer.local",
    "metadata.google.internal", "host.docker.internal", "nas.home.arpa", "x.lan", "a.intranet",
    "api.ns.svc", "api.ns.svc.cluster.local", "a.localdomain", "1.0.0.127.in-addr.arpa", "a.onion",
    "a.test", "a.corp", "a.home",
    # by number
    "127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "2130706433", "017700000001", "0x7f000001",
    "0x7f.1", "0x7F.0.0.1", "0177.0.0.1", "127.0.0.01", "127.0.0.1:443", "0", "0.0.0.0", "00.0.0.0",
    "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "169.254.1",
    "100.64.0.1", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "168.63.129.16", "256.1.1.1", "1.2.3.4.5", "8.8.8", "08.8.8.8", "8.8.8.0x8", "0x", "a.0x",
    # by number, version 6
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]",
    "[fe80::1%25eth0]", "[fe80::1%eth0]", "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]",
    "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:1::1]", "[2001:db8::1]",
    "[3fff::1]", "[100::1]", "[5f00::1]", "[::ffff:8.8.8.8]", "[2606:2800::1", "2606:2800::1",
    "[127.0.0.1]", "[v1.a]", "[]", "[0:0:0:0:0:0:0:1]",
    # in disguise
    "user@example.org", "example.org@127.0.0.1", "127.0.0.1@example.org", "user:pw@example.org",
    "example.org%00.a.b", "%31%32%37.0.0.1", "127%2e0%2e0%2e1", "example.org\\@127.0.0.1",
    "127.0.0.1\\.example.org", "example.org:80:80", "example.org:", "example.org:0",
    "example.org:65536", "example.org:99999", "example..org", ".example.org", "example.org..", ".",
    "..", "-a.example.org", "a-.example.org", "a,b.example.org", "a;b.example.org", "a.b|c.d",
    "example.org&a", "*.example.org", "a'b.example.org", "xn--a.example.org-",
    "xn--\u2460", "xn--ghq", "xn--.example.org",
    "a" * 64 + ".example.org", ".".join(["a" * 60] * 5) + ".org",
]  # fmt: skip


def body(url: str) -> bytes:
    """A request with an image of this address."""
    image = {"type": "image_url", "image_url": {"url": url}}
    parts = [{"type": "text", "text": "What is it?"}, image]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()


def refusal(url: str, inside: InsideHosts = NO_INSIDE_HOSTS) -> InvalidRequest | None:
    """Return the refusal of the whole request for a provider that fetches, if any."""
    try:
        outgoing(parse(body(url), ParsingRules()), replace(OPENAI, inside=inside), "theirs")
    except InvalidRequest as error:
        return error
    return None


@each_of("host", GOOD)
def test_public_hosts_are_passed_on(host: str) -> None:
    for rest in ("", "/a.png", "/a.png?b=c#d", "?x", "#x", "/a@b/c:d"):
        assert refusal(f"https://{host}{rest}") is None, rest


@each_of("host", BAD)
def test_hosts_inside_are_refused(host: str) -> None:
    for rest in ("", "/a.png", "?@example.org", "#@example.org", "/@example.org"):
        refused = refusal(f"https://{host}{rest}")
        assert refused is not None, rest
        assert (refused.status, refused.param) == (400, AT), rest


@each_of(
    "url",
    [
        "http://example.org/", "HTTPS://example.org/", "ftp://example.org/", "file:///etc/passwd",
        "gopher://127.0.0.1/", "//127.0.0.1/", "https:/127.0.0.1/", "https:127.0.0.1",
        "https:///127.0.0.1", "https:\\\\127.0.0.1\\", "https://\\127.0.0.1/", "https://",
        " https://127.0.0.1/", "https://127.0.0.1 /", "https://\t127.0.0.1/", "https://127.0.0.1\n",
        "https://exam\nple.org/", "https://①②⑦.⓪.⓪.①/", "https://１２７.0.0.1/",
        "https://127。0。0。1/", "https://ⓛocalhost/", "https://loc\u00adalhost/",
        "https://example.org\u200b@127.0.0.1/", "data:text/html,x", "blob:https://a.org/1", "",
        "https://example.org/\\..\\", "jar:https://127.0.0.1!/", "url:https://127.0.0.1/",
    ],
)  # fmt: skip
def test_other_schemes_and_characters_are_refused(url: str) -> None:
    refused = refusal(url)
    assert refused is not None
    assert (refused.status, refused.param) == (400, AT)


@each_of("dialect", DIALECTS)
def test_no_image_hides_in_a_part_of_another_type(dialect: str) -> None:
    hidden = {"type": "text", "text": "Hi", "image_url": {"url": "https://127.0.0.1/"}}
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": [hidden]}]}).encode()
    with pytest.raises(InvalidRequest) as refused:
        outgoing(parse(raw, ParsingRules()), DIALECTS[dialect], "theirs")
    assert refused.value.param == "messages[0].content[0].image_url"


PRIVATE_FOUR = [
    IPv4Network(one)
    for one in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
PRIVATE_SIX = [
    IPv6Network(one)
    for one in (
        "::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32",
        "2001:db8::/32", "2002::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
    )
]  # fmt: skip


def spelled(number: int, draw: Any) -> str:
    """An address of version 4 in one of the ways in which readers of addresses take one."""
    parts = [number >> 24, number >> 16 & 255, number >> 8 & 255, number & 255]
    count = draw(st.integers(1, 4))
    tail = sum(part << 8 * place for place, part in enumerate(reversed(parts[count - 1 :])))
    forms = []
    for part in [*parts[: count - 1], tail]:
        zeros = "0" * draw(st.integers(0, 3))
        form = draw(st.sampled_from([f"{part}", f"0{zeros}{part:o}", f"0x{zeros}{part:x}"]))
        forms.append(form.upper() if draw(st.booleans()) else form)
    return ".".join(forms) + draw(st.sampled_from(["", "."]))


@given(st.data())
def test_no_spelling_of_a_private_number_passes(data: st.DataObject) -> None:
    network = data.draw(st.sampled_from(PRIVATE_FOUR))
    number = data.draw(st.integers(int(network[0]), int(network[-1])))
    port = data.draw(st.sampled_from(["", ":80", ":443", ":22"]))
    assert host_refusal(f"https://{spelled(number, data.draw)}{port}/", NO_INSIDE_HOSTS) is not None


@given(st.data())
def test_a_public_number_passes_in_its_usual_form_only(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 2**32 - 1).map(IPv4Address).filter(lambda one: one.is_global))
    host = spelled(int(number), data.draw)
    usual = host.rstrip(".") == str(number)
    if host_refusal(f"https://{host}/", NO_INSIDE_HOSTS) is None:
        assert usual
        assert not number.is_multicast
    assert (
        host_refusal(f"https://{number}/", NO_INSIDE_HOSTS) is None
        or number.is_multicast
        or any(
            number in IPv4Network(one)
            for one in ("192.88.99.0/24", "168.63.129.16/32", "240.0.0.0/4")
        )
    )


@given(st.data())
def test_no_spelling_of_a_private_number_of_version_6_passes(data: st.DataObject) -> None:
    network = data.draw(st.sampled_from(PRIVATE_SIX))
    number = IPv6Address(data.draw(st.integers(int(network[0]), int(network[-1]))))
    four = str(IPv4Address(int(number) & 0xFFFFFFFF))
    mixed = f"{':'.join(number.exploded.split(':')[:6])}:{four}"
    spelling = data.draw(st.sampled_from([str(number), number.exploded, mixed]))
    spelling = spelling.upper() if data.draw(st.booleans()) else spelling
    assert host_refusal(f"https://[{spelling}]/", NO_INSIDE_HOSTS) is not None


@given(st.text(string.ascii_letters + string.digits + "-_%@:[]\\/?#.!&;,①。\t ", max_size=30))
def test_what_passes_is_read_alike_everywhere(rest: str) -> None:
    """Of an address that passes, another reader finds the same host, and nothing to unescape."""
    url = f"https://{rest}"
    if refusal(url) is not None:
        return
    split = urlsplit(url)
    assert split.username is None
    assert split.password is None
    host = split.hostname or ""
    assert "." in host.rstrip(".") or ":" in host
    assert host.isascii()
    assert not set(host) & set("%@\\ \t")


def test_what_may_be_an_exception() -> None:
    for host in ("minio", "a.corp", ".corp.example", "10.0.0.0/8", "10.1.2.3", "fd00::/8", "::1"):
        InsideHosts.parse([host])
    for host in (
        "",
        ".",
        "A.corp",
        "127.1",
        "10.0.0.1/8",
        "a b",
        "https://a",
        "a..b",
        "*.a",
        "[::1]",
    ):
        with pytest.raises(ValueError):
            InsideHosts.parse([host])


@each_of(
    ("host", "passes"),
    [
        ("minio", True), ("MinIO:9000", True), ("minio.", True), ("x.minio", True),
        ("a.corp", False), ("a.b.corp", False), ("img.store.corp", True), ("store.corp", False),
        ("xstore.corp", False), ("10.1.2.3", True), ("10.2.0.1", False), ("10.1.515", False),
        ("167838211", False), ("[fd00:1::5]", True), ("[fd00:2::5]", False),
        ("[::ffff:10.1.2.3]", False), ("127.0.0.1", False), ("example.org", True),
    ],
)  # fmt: skip
def test_exceptions_of_the_operator(host: str, passes: bool) -> None:
    inside = InsideHosts.parse(["minio", ".store.corp", "10.1.0.0/16", "fd00:1::/64"])
    assert (refusal(f"https://{host}/a.png", inside) is None) == passes


async def test_a_provider_does_not_see_it(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://169.254.169.254/latest"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, image]}]
    async with upstream(Reply()) as up, gateway(up.base_url, dialect="openai") as there:
        for answer in (await there.plain(messages=messages), await there.stream(messages=messages)):
            assert answer.status == 400
            assert answer.error is not None
            assert answer.error["param"] == AT
        assert not up.requests


async def test_the_settings_have_exceptions(tmp_path: Path) -> None:
    def asked(host: str) -> list[dict[str, Any]]:
        image = {"type": "image_url", "image_url": {"url": f"https://{host}/a.png"}}
        return [{"role": "user", "content": [{"type": "text", "text": "Hi"}, image]}]

    async with upstream(Reply()) as up:
        text = f"""
[[doors]]
name = "gateway"
kind = "gateway"
[[providers]]
name = "there"
base_url = "{up.base_url}"
dialect = "vllm"
fetches_images = true
private_image_hosts = ["minio", "10.0.0.0/24"]
health = {{ path = "" }}
[[aliases]]
id = "fast"
targets = [{{ provider = "there", model = "m" }}]
"""
        async with service_view(tmp_path, text) as there:
            for host, status in (("minio", 200), ("10.0.0.7", 200), ("10.0.1.7", 400), ("db", 400)):
                base = "/gateway/v1"
                got, _, answer = await there.ask(base, "fast", messages=asked(host))
                assert got == status, answer
        assert len(up.requests) == 2
