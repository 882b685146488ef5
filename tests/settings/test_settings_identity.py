"""Identity providers in the configuration: what holds, and what is refused where."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from certificates import Certificates

from causerie.composition.account_frontend import identity_providers, sign_in_policy
from causerie.settings.credentials import read_credentials
from causerie.settings.load import Loaded, load
from causerie.settings.problems import SettingsError
from causerie.settings.values import Secret

GOOD = """\
[[identity_providers]]
name = "work"
title = "Work"
issuer = "https://id.example.org/realms/work"
client_id = "causerie"
client_secret = { env = "WORK_SECRET" }
"""


def loaded(folder: Path, text: str) -> Loaded:
    file = folder / "causerie.toml"
    file.write_text(text, encoding="utf-8")
    return load(file=file, environ={})


def refused(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, text)
    [problem] = caught.value.problems
    return str(problem)


def test_certificates_of_a_provider(tmp_path: Path, certificates: Certificates) -> None:
    (tmp_path / "ca.pem").write_bytes(certificates.ca.read_bytes())
    [provider] = loaded(tmp_path, GOOD + 'ca_file = "ca.pem"\n').settings.identity_providers
    assert provider.ca_file == str(tmp_path / "ca.pem")
    assert "identity_providers[0].ca_file: there is no file" in refused(
        tmp_path, GOOD + 'ca_file = "none.pem"\n'
    )
    (tmp_path / "no.pem").write_text("no certificate")
    assert "identity_providers[0].ca_file: cannot be used" in refused(
        tmp_path, GOOD + 'ca_file = "no.pem"\n'
    )


def test_a_provider_and_its_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the file\n".replace(" ", "-"))
    text = GOOD + GOOD.replace('"work"', '"other"').replace(
        '{ env = "WORK_SECRET" }', '{ file = "secret" }'
    )
    text += 'sign_up = true\nallowed_domains = ["example.org"]\n'
    found = loaded(tmp_path, text)
    listed = found.settings.identity_providers
    assert listed[1].client_secret == Secret(file=str(tmp_path / "secret"))
    credentials = read_credentials(found, {"WORK_SECRET": "of-the-variable"})
    assert "of-the" not in repr(credentials)
    one, two = identity_providers(listed, credentials)
    assert (one.options.title, one.options.client_secret) == ("Work", "of-the-variable")
    assert (two.options.client_secret, two.options.domains) == (
        "of-the-file",
        frozenset({"example.org"}),
    )
    assert one.options.domains == frozenset()


@pytest.mark.parametrize(
    ("change", "where", "why"),
    [
        ('issuer = "http://id.example.org"', "issuer", "use `https://`"),
        ('issuer = "https://id.example.org?x=1"', "issuer", "more than scheme, host and path"),
        ('issuer = "https://me:pass@id.example.org"', "issuer", "more than scheme"),
        ('issuer = "https://id.example.org:port"', "issuer", "no address"),
        ('issuer = "id.example.org"', "issuer", "begins with"),
        ('client_secret = "inline"', "client_secret", "stands in the file itself"),
        ("client_secret = {}", "client_secret", "has nothing"),
        ('scopes = ["email"]', "scopes", "lacks `openid`"),
        ("sign_up = true", "sign_up", "needs `allowed_domains`"),
        ('allowed_domains = ["example.org"]', "allowed_domains", "means nothing without"),
        ('sign_up = true\nallowed_domains = ["@Example.org"]', "allowed_domains", "a domain"),
        ('name = "Work Place"', "name", "lower-case"),
        ('name = "code"', "name", "choose another"),
        ('trusted_domains = ["*"]', "trusted_domains", "a host name"),
        ("recheck_minutes = 1", "recheck_minutes", "from 5"),
        (f'scim_keys = ["{"0" * 64}"]', "join_accounts", "lets nobody in"),
        ('groups = [{ group = "staff" }]', "groups[0]", "gives nothing"),
        ('groups = [{ group = "a", project = "prj_a", role = "king" }]', "groups[0].role", "owner"),
    ],
)
def test_what_does_not_hold(tmp_path: Path, change: str, where: str, why: str) -> None:
    key = change.partition(" ")[0]
    kept = "".join(line for line in GOOD.splitlines(True) if not line.startswith(f"{key} "))
    problem = refused(tmp_path, f"{kept}{change}\n")
    assert f"identity_providers[0].{where}" in problem
    assert why in problem
    assert "inline" not in problem


def test_this_machine_needs_no_https(tmp_path: Path) -> None:
    for host in ("127.0.0.1:9000", "localhost", "[::1]:9000"):
        loaded(tmp_path, GOOD.replace("https://id.example.org/realms/work", f"http://{host}"))


def test_sign_ins_are_left_to_providers_that_there_are(tmp_path: Path) -> None:
    console = '[console]\npassword_sign_in = "operators"\ntwo_factor = "required"\n'
    assert "console.password_sign_in: needs `identity_providers`" in refused(tmp_path, console)
    text = GOOD + 'verified_claim = "xms_edov"\nemail_claim = "upn"\nrecheck_minutes = 60\n'
    settings = loaded(tmp_path, text + console + "session_hours = 8\n").settings
    policy = sign_in_policy(settings)
    assert (policy.passwords, policy.two_factor, policy.life) == (
        "operators",
        True,
        timedelta(hours=8),
    )
    assert policy.lives == {"https://id.example.org/realms/work": timedelta(hours=1)}
    [provider] = settings.identity_providers
    assert provider.email_verification == "xms_edov"
    [usual] = loaded(tmp_path, GOOD).settings.identity_providers
    assert usual.email_verification == "email_verified"
    [other] = loaded(tmp_path, GOOD + 'email_claim = "upn"\n').settings.identity_providers
    assert other.email_verification is None, "it is about another claim"


def test_names_are_unique(tmp_path: Path) -> None:
    assert '"work" is taken' in refused(tmp_path, GOOD + GOOD)


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="WORK_SECRET is not set"):
        read_credentials(loaded(tmp_path, GOOD), {})
