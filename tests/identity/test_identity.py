"""Signing in with another provider, by its process: the way it goes, and everything that lies."""

from __future__ import annotations

import re
import ssl
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from certificates import Certificates
from oidcserver import CLIENT, SECRET, RunningIssuer
from structlog.testing import capture_logs

from causerie.errors import Unauthenticated, UpstreamFailed
from causerie.hosted.accounts.people import GroupClaims, Vouched
from causerie.hosted.identity.provider import (
    ATTEMPT_SECONDS,
    IdentityHttp,
    OidcProvider,
    ProviderOptions,
    Returned,
    SignInAttempt,
)

CALLBACK = "http://127.0.0.1:1/console/sign-in/test/back"


@dataclass
class Browser:
    """Somebody at a browser, in front of the service and the provider."""

    service_view: RunningIssuer
    options: ProviderOptions
    web: IdentityHttp
    trusts: ssl.SSLContext | bool = True
    later: float = 0.0  # on the calendar
    passed: float = 0.0  # on the clock that only measures
    provider: OidcProvider = field(init=False)

    def __post_init__(self) -> None:
        self.provider = OidcProvider(
            self.options,
            self.web,
            now=lambda: time.time() + self.later,
            monotonic=lambda: time.monotonic() + self.passed,
        )

    async def leave(self) -> tuple[SignInAttempt | None, Returned]:
        """To the provider, and back to our door with what was kept by the state."""
        kept: dict[str, SignInAttempt] = {}

        def state(attempt: SignInAttempt) -> str:
            kept["of-this-browser"] = attempt
            return "of-this-browser"

        url = await self.provider.begin(CALLBACK, state)
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, allow_redirects=False, ssl=self.trusts) as response,
        ):
            assert response.status == 302, await response.text()
            place = response.headers["location"]
        assert place.startswith(f"{CALLBACK}?")
        found = {name: each[0] for name, each in parse_qs(urlsplit(place).query).items()}
        returned = Returned(
            code=found.get("code", ""), error=found.get("error", ""), issuer=found.get("iss", "")
        )
        return kept.get(found["state"]), returned

    async def come(self) -> Vouched:
        """All the way."""
        return await self.provider.finish(*await self.leave())

    async def refused(self) -> str:
        """Return the reason in the log for the rejection; people see less."""
        attempt, returned = await self.leave()
        return await self.refused_with(attempt, returned)

    async def refused_with(self, attempt: SignInAttempt | None, returned: Returned) -> str:
        with capture_logs() as lines, pytest.raises(Unauthenticated) as caught:
            await self.provider.finish(attempt, returned)
        assert caught.value.code == "identity_refused"
        assert caught.value.message.startswith("Signing in with The Test was not completed.")
        for secret in (SECRET, returned.code or "-"):
            assert secret == "-" or secret not in str(lines)
        return str(lines[-1]["why"])

    async def failed(self) -> str:
        """Return the log's text on a provider that cannot be asked."""
        with capture_logs() as lines, pytest.raises(UpstreamFailed) as caught:
            await self.come()
        assert caught.value.code == "identity_provider"
        assert "127.0.0.1" not in caught.value.message
        assert SECRET not in str(lines)
        return str(lines[-1]["why"])


@pytest.fixture
def browser(oidc: RunningIssuer) -> Browser:
    oidc.behave()
    options = ProviderOptions("test", "The Test", oidc.issuer, CLIENT, SECRET)
    return Browser(oidc, options, IdentityHttp(seconds=1.0, max_bytes=100_000))


async def test_there_and_back(browser: Browser) -> None:
    assert await browser.come() == Vouched(
        *(browser.service_view.issuer, "ada-1", "ada@example.org"),
        email_verified=True,
        name="Ada",
        groups=GroupClaims("test"),
    )
    await browser.come()
    assert browser.service_view.asked() == {"discovery": 1, "keys": 1, "token": 2}


@pytest.mark.parametrize(
    ("ways", "changes"),
    [
        ({"signed": "ec"}, {}),
        ({"signed": "nameless"}, {}),
        (
            {
                "secret_in_form": True,
                "document": {"token_endpoint_auth_methods_supported": ["client_secret_post"]},
            },
            {},
        ),
        ({"claims": {"aud": [CLIENT, "another"], "azp": CLIENT}}, {}),
        ({"claims": {"email_verified": "true"}}, {}),
        ({"claims": {"email_verified": False}}, {"email_verified": False}),
        ({"claims": {"email_verified": None}}, {"email_verified": False}),
        ({"claims": {"email": None, "email_verified": None}}, {}),  # the rest is asked for
        ({"claims": {"email": 7, "name": ["x"]}}, {"email": "", "name": ""}),
        ({"document": {"id_token_signing_alg_values_supported": 3}}, {}),
        ({"times": {"iat": 30, "exp": -30, "nbf": 30}}, {}),  # clocks differ a little
    ],
)
async def test_what_good_providers_do(
    browser: Browser, ways: dict[str, Any], changes: dict[str, Any]
) -> None:
    browser.service_view.behave(**ways)
    issuer, groups = browser.service_view.issuer, GroupClaims("test")
    plain = Vouched(issuer, "ada-1", "ada@example.org", True, "Ada", groups)
    assert await browser.come() == replace(plain, **changes)


@pytest.mark.parametrize(
    ("ways", "why"),
    [
        ({"signed": "none"}, "no signature by a public key"),
        ({"signed": "public"}, "no signature by a public key"),
        ({"signed": "strange"}, "its signature is wrong"),
        ({"signed": "changed"}, "its signature is wrong"),
        ({"signed": "newer"}, "no key of its issuer signed it"),
        (
            {"signed": "ec", "document": {"id_token_signing_alg_values_supported": ["RS256"]}},
            "its issuer does not offer",
        ),
        ({"claims": {"nonce": "another"}}, "another attempt"),
        ({"claims": {"nonce": None}}, "another attempt"),
        ({"claims": {"nonce": 7}}, "another attempt"),
        ({"claims": {"aud": "another"}}, "somebody else"),
        ({"claims": {"aud": None}}, "somebody else"),
        ({"claims": {"aud": [CLIENT, "another"]}}, "given to somebody else"),
        ({"claims": {"azp": "another"}}, "given to somebody else"),
        ({"claims": {"iss": "http://127.0.0.1:2"}}, "another issuer"),
        ({"claims": {"sub": None}}, "names nobody"),
        ({"claims": {"sub": ""}}, "names nobody"),
        ({"claims": {"sub": "x" * 300}}, "names nobody"),
        ({"times": {"exp": -120}}, "has expired"),
        ({"claims": {"exp": None}}, "has no end"),
        ({"claims": {"exp": "9999999999"}}, "has no end"),
        ({"claims": {"exp": True}}, "has no end"),
        ({"times": {"iat": 3600}}, "of the future"),
        ({"times": {"nbf": 3600}}, "of the future"),
        ({"reply": {"id_token": None}}, "no id token"),
        ({"reply": {"id_token": "x.y.z"}}, "no signed token"),
        ({"reply": {"id_token": ""}}, "no signed token"),
        ({"reply": {"id_token": "é" * 10}}, "no signed token"),
        ({"claims": {"more": [1e289] * 1_000}}, "its payload is no JSON"),
        ({"denied": True}, "did not let them in"),
        ({"back": {"code": None}}, "did not let them in"),
        ({"back": {"code": "x" * 5000}}, "did not let them in"),
        ({"back": {"iss": "http://127.0.0.1:2"}}, "the answer is of another issuer"),
        ({"back": {"iss": None}}, "the answer is of another issuer"),
        ({"back": {"state": "planted"}}, "the state is not of this browser"),
        ({"claims": {"email": None}, "told": {"sub": "eve"}}, "tells of somebody else"),
    ],
)
async def test_what_is_not_believed(browser: Browser, ways: dict[str, Any], why: str) -> None:
    browser.service_view.behave(**ways)
    assert why in await browser.refused()


@pytest.mark.parametrize(
    ("ways", "why"),
    [
        ({"discovery": "broken"}, "status 500 server_error"),
        ({"discovery": "html"}, "no JSON object"),
        ({"discovery": "slow"}, "no answer in 1 s"),
        ({"document": {"more": [1e289] * 1_000}}, "no JSON object"),
        ({"discovery": "huge"}, "too_large"),
        ({"discovery": "redirect"}, "status 302"),
        ({"document": {"issuer": "http://127.0.0.1:2"}}, "names another issuer"),
        ({"document": {"token_endpoint": "file:///etc/passwd"}}, "no good token_endpoint"),
        ({"document": {"jwks_uri": None}}, "no good jwks_uri"),
        ({"document": {"jwks_uri": "http://127.0.0.1:bad/"}}, "an address that is none"),
        ({"document": {"jwks_uri": "http://127.0.0.1:1/\r\nx: y"}}, "127.0.0.1"),
        ({"keys": "broken"}, "status 500"),
        ({"keys": "huge"}, "too_large"),
        ({"token": "slow"}, "no answer in 1 s"),
        ({"token": "huge"}, "too_large"),
        ({"token": "html"}, "no JSON object"),
        ({"claims": {"email": None}, "userinfo": "broken"}, "status 500"),
    ],
)
async def test_a_provider_that_cannot_be_asked(
    browser: Browser, ways: dict[str, Any], why: str
) -> None:
    browser.service_view.behave(**ways)
    assert why in await browser.failed()
    browser.service_view.behave()
    browser.passed += 3601
    assert (await browser.come()).subject == "ada-1"


async def test_a_provider_that_is_down_is_not_asked_by_everybody(browser: Browser) -> None:
    browser.service_view.behave(discovery="broken")
    for _ in range(5):
        await browser.failed()
    assert browser.service_view.asked() == {"discovery": 1}
    browser.passed += 6
    await browser.failed()
    assert browser.service_view.asked() == {"discovery": 2}


async def test_a_provider_behind_a_certificate(
    tls_oidc: RunningIssuer, certificates: Certificates
) -> None:
    options = ProviderOptions("test", "The Test", tls_oidc.issuer, CLIENT, SECRET)
    trusts = ssl.create_default_context(cafile=certificates.ca)
    browser = Browser(tls_oidc, options, IdentityHttp(ca_file=str(certificates.ca)), trusts)
    assert (await browser.come()).subject == "ada-1"


@pytest.mark.parametrize("trusted", ["other", None])
async def test_a_provider_whose_certificate_is_not_trusted(
    tls_oidc: RunningIssuer, certificates: Certificates, trusted: str | None
) -> None:
    options = ProviderOptions("test", "The Test", tls_oidc.issuer, CLIENT, SECRET)
    file = None if trusted is None else str(getattr(certificates, trusted))
    why = await Browser(tls_oidc, options, IdentityHttp(ca_file=file)).failed()
    assert re.fullmatch(r"127\.0\.0\.1:\d+: .*(certificate|issuer).*", why)


async def test_certificates_that_have_gone_since(oidc: RunningIssuer, tmp_path: Path) -> None:
    options = ProviderOptions("test", "The Test", oidc.issuer, CLIENT, SECRET)
    why = await Browser(oidc, options, IdentityHttp(ca_file=str(tmp_path / "gone.pem"))).failed()
    assert why == "the file of certificates cannot be read"


async def test_a_provider_that_is_gone() -> None:
    options = ProviderOptions("test", "The Test", "http://127.0.0.1:9", CLIENT, SECRET)
    provider = OidcProvider(options, IdentityHttp(seconds=1.0), now=time.time)
    with pytest.raises(UpstreamFailed):
        await provider.begin(CALLBACK, lambda _: "state")


async def test_new_keys_are_looked_for_once_in_a_while(browser: Browser) -> None:
    await browser.come()
    browser.service_view.behave(signed="newer", rotated=True)
    assert "no key of its issuer" in await browser.refused()
    assert "keys" not in browser.service_view.asked()  # it was asked a moment ago
    browser.passed += 61
    assert (await browser.come()).subject == "ada-1"
    assert browser.service_view.asked()["keys"] == 1


async def test_a_code_works_once(browser: Browser) -> None:
    attempt, returned = await browser.leave()
    await browser.provider.finish(attempt, returned)
    with capture_logs() as lines, pytest.raises(UpstreamFailed):
        await browser.provider.finish(attempt, returned)
    assert "invalid_grant" in lines[-1]["why"]


async def test_a_code_works_only_where_it_was_begun(browser: Browser) -> None:
    """Somebody's answer, planted in another's browser, or taken to one's own."""
    mine, my_return = await browser.leave()
    _, their_return = await browser.leave()
    assert mine is not None
    assert "not of this browser" in await browser.refused_with(None, their_return)
    with pytest.raises(UpstreamFailed):  # the verifier does not fit
        await browser.provider.finish(mine, their_return)
    other = replace(mine, provider="other")
    assert "not of this browser" in await browser.refused_with(other, my_return)
    elsewhere = replace(mine, callback=CALLBACK.replace("test", "other"))
    with pytest.raises(UpstreamFailed):
        await browser.provider.finish(elsewhere, my_return)


async def test_an_attempt_ends(browser: Browser) -> None:
    attempt, returned = await browser.leave()
    for moved in (ATTEMPT_SECONDS + 60, -3600):
        browser.later = moved
        assert "too long" in await browser.refused_with(attempt, returned)


async def test_attempts_are_never_alike(browser: Browser) -> None:
    begun = [(await browser.leave())[0] for _ in range(20)]
    for part in ("nonce", "verifier"):
        assert len({getattr(each, part) for each in begun}) == 20
        assert getattr(begun[0], part) not in repr(begun[0])
    assert SECRET not in repr(browser.options)


async def test_a_wrong_secret(browser: Browser) -> None:
    wrong = Browser(
        browser.service_view, replace(browser.options, client_secret="wrong"), browser.web
    )
    assert "status 401 invalid_client" in await wrong.failed()
