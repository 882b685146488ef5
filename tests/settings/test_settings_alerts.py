"""Settings of alerts: what is refused, and where their secrets come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from causerie.settings.credentials import read_credentials
from causerie.settings.load import load
from causerie.settings.problems import SettingsError

WHOLE = """
[mail]
host = "127.0.0.1"
tls = "off"
sender = "causerie@example.org"

[[alerts.webhooks]]
name = "ops"
url = "https://hooks.example.org/team-a?room=1"
secret = { env = "OPS" }

[[alerts.emails]]
name = "team"
to = ["ops@example.org"]
kinds = ["budget"]
"""
SECRET = "whsec_" + "A" * 32


def problems(text: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "causerie.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as raised:
        load(file=file, environ={})
    return [str(each) for each in raised.value.problems]


def test_a_secret_is_read_where_it_is_found(tmp_path: Path) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(WHOLE)
    loaded = load(file=file, environ={})
    assert read_credentials(loaded, {"OPS": SECRET}).alerts == {"ops": SECRET}
    with pytest.raises(SettingsError, match=r"alerts\.webhooks\[0\]\.secret: does not begin"):
        read_credentials(loaded, {"OPS": "hunter2"})


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("https://hooks.example.org", "http://hooks.example.org", "anybody on the way"),
        ("https://hooks", "https://user:password@hooks", "a user name or a password"),
        ('name = "team"', 'name = "ops"', "names are unique"),
        ('name = "team"', 'name = "owners"', "owners of keys"),
        ('host = "127.0.0.1"', "", "needs `mail.host`"),
        ('"ops@example.org"', '"ops"', "an address like"),
        ('["budget"]', '["weather"]', "weather"),
        ('{ env = "OPS" }', "{}", "has nothing"),
        ('secret = { env = "OPS" }', "", "is missing"),
        ('{ env = "OPS" }', f'"{SECRET}"', "stands in the file itself"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, was: str, now: str, words: str) -> None:
    found = problems(WHOLE.replace(was, now), tmp_path)
    assert any(words in each for each in found), found
    assert SECRET not in str(found)


@pytest.mark.parametrize("extra", ["", "allow_http = true\n"])
def test_plain_http_is_for_this_machine_or_stated(tmp_path: Path, extra: str) -> None:
    host = "hooks.example.org" if extra else "127.0.0.1:9000"
    file = tmp_path / "causerie.toml"
    file.write_text(
        WHOLE.replace("https://hooks.example.org", f"http://{host}").replace(
            'name = "ops"\n', f'name = "ops"\n{extra}'
        )
    )
    assert load(file=file, environ={}).settings.alerts.webhooks[0].url.startswith("http://")


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_messages_for_chats_need_no_secret(tmp_path: Path, format: str) -> None:
    file = tmp_path / "causerie.toml"
    file.write_text(WHOLE.replace('secret = { env = "OPS" }', f'format = "{format}"'))
    loaded = load(file=file, environ={})
    assert loaded.settings.alerts.webhooks[0].format == format
    assert read_credentials(loaded, {}).alerts == {}
