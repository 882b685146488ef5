"""Signing in by another provider, and linking its word to one's account."""

from __future__ import annotations

from urllib.parse import quote

from causerie.accounts.arrival import Vouched
from causerie.console.errand import Errand, sealed, unsealed
from causerie.console.pages.links import address, opened
from causerie.console.pages.sign_in import go_on
from causerie.console.visit import PREFIX, Visit
from causerie.errors import NotFound
from causerie.identity.provider import Attempt, OidcProvider, Returned

_AWAY = "sign_in/away.html"


async def begin(visit: Visit) -> None:
    """Lead to the provider, to sign in."""
    after = visit.query.get("next")
    visit.leave(await _address(visit, _provider(visit), after=after))


async def begin_with_link(visit: Visit) -> None:
    """The way to the provider for whoever holds a link that makes an account.

    A page with a link to it: the policy lets no form lead to another site.
    """
    provider, link = _provider(visit), visit.form.get("token")
    await opened(visit, link)
    await visit.show(_AWAY, provider=provider, address=await _address(visit, provider, link=link))


async def begin_to_join(visit: Visit) -> None:
    """The way to the provider for whoever wants to sign in by it from now on."""
    provider = _provider(visit)
    await visit.show(_AWAY, provider=provider, address=await _address(visit, provider, joins=True))


async def back(visit: Visit) -> None:
    """Whoever comes back from the provider."""
    provider, query = _provider(visit), visit.query
    errand = unsealed(query.get("state"), visit.token)
    returned = Returned(code=query.get("code"), error=query.get("error"), issuer=query.get("iss"))
    async with visit.accounts.attempts.from_address("provider", visit.client):
        claims = await provider.finish(errand.attempt if errand is not None else None, returned)
    if errand is not None and errand.joins:
        await visit.accounts.users.link_identity(visit.me, claims.issuer, claims.subject)
        visit.go("/profile", done="identity-linked")
        return
    begun = await visit.accounts.arrivals.enter(
        Vouched(claims.issuer, claims.subject, claims.email, claims.email_verified, claims.name),
        visit.client,
        domains=provider.options.domains,
        link_token=errand.link if errand is not None else "",
        old_token=visit.token,
    )
    go_on(visit, begun, await _after(visit, errand) if errand is not None else "")


async def unlink(visit: Visit) -> None:
    """Sign in by this identity no more."""
    form = visit.form
    await visit.accounts.users.unlink_identity(visit.me, form.get("issuer"), form.raw("subject"))
    visit.go("/profile", done="identity-unlinked")


async def _after(visit: Visit, errand: Errand) -> str:
    """Where to: whoever had an account already has still to accept what they came for."""
    try:
        link = await visit.accounts.users.link(errand.link)
    except NotFound:  # there was none, or it has just been used up
        return errand.after
    wanted = link.project_id is not None or link.operator
    return address("", errand.link) if wanted else errand.after


def _provider(visit: Visit) -> OidcProvider:
    for provider in visit.desk.providers():
        if provider.options.name == visit.params["provider"]:
            return provider
    raise NotFound("There is no such page.")


async def _address(
    visit: Visit, provider: OidcProvider, *, after: str = "", link: str = "", joins: bool = False
) -> str:
    def state(attempt: Attempt) -> str:
        return sealed(Errand(attempt, after, link, joins), visit.token)

    name = quote(provider.options.name)
    return await provider.begin(f"{visit.base}{PREFIX}/sign-in/{name}/back", state)
