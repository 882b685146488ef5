"""Signing in by another provider, and linking its word to one's account."""

from __future__ import annotations

from urllib.parse import quote

from causerie.accounts.group_memberships import NO_GROUPS, GroupClaims, GroupGrant
from causerie.accounts.people import Role
from causerie.accounts.sso_provisioning import Vouched
from causerie.console.login_state import LoginState, sealed, unsealed
from causerie.console.pages.links import address, opened
from causerie.console.pages.sign_in import go_on
from causerie.console.request_context import PREFIX, RequestContext
from causerie.errors import NotFound
from causerie.identity.provider import (
    Claims,
    OidcProvider,
    ProviderOptions,
    Returned,
    SignInAttempt,
)

_AWAY = "sign_in/away.html"


async def begin(context: RequestContext) -> None:
    """Lead to the provider, to sign in."""
    after = context.query.get("next")
    context.leave(await _address(context, _provider(context), after=after))


async def begin_with_link(context: RequestContext) -> None:
    """The way to the provider for whoever holds a link that makes an account.

    A page with a link to it: the policy lets no form lead to another site.
    """
    provider, link = _provider(context), context.form.get("token")
    await opened(context, link)
    await context.show(
        _AWAY, provider=provider, address=await _address(context, provider, link=link)
    )


async def begin_to_join(context: RequestContext) -> None:
    """The way to the provider for whoever wants to sign in by it from now on."""
    provider = _provider(context)
    await context.show(
        _AWAY, provider=provider, address=await _address(context, provider, joins=True)
    )


async def back(context: RequestContext) -> None:
    """Complete a sign-in at the return from the provider."""
    provider, query = _provider(context), context.query
    login_state = unsealed(query.get("state"), context.token)
    returned = Returned(code=query.get("code"), error=query.get("error"), issuer=query.get("iss"))
    async with context.accounts.attempts.from_address("provider", context.client):
        claims = await provider.finish(
            login_state.attempt if login_state is not None else None, returned
        )
    if login_state is not None and login_state.joins:
        await context.accounts.users.link_identity(context.me, claims.issuer, claims.subject)
        context.go("/profile", done="identity-linked")
        return
    started = await context.accounts.arrivals.enter(
        _vouched(claims, provider.options),
        context.client,
        domains=provider.options.domains,
        link_token=login_state.link if login_state is not None else "",
        old_token=context.token,
    )
    go_on(context, started, await _after(context, login_state) if login_state is not None else "")


def _vouched(claims: Claims, options: ProviderOptions) -> Vouched:
    """Return the identity as accounts take it, with what its groups give."""
    groups = NO_GROUPS
    if claims.groups is not None:
        grants = [
            GroupGrant(each.group, each.project, Role(each.role), each.operator)
            for each in options.groups
        ]
        groups = GroupClaims(options.name, claims.groups, grants)
    return Vouched(
        claims.issuer, claims.subject, claims.email, claims.email_verified, claims.name, groups
    )


async def unlink(context: RequestContext) -> None:
    """Sign in by this identity no more."""
    form = context.form
    await context.accounts.users.unlink_identity(
        context.me, form.get("issuer"), form.raw("subject")
    )
    context.go("/profile", done="identity-unlinked")


async def _after(context: RequestContext, login_state: LoginState) -> str:
    """Return the next page; a visitor who had an account already still has to accept the link."""
    try:
        link = await context.accounts.users.link(login_state.link)
    except NotFound:  # there was none, or it has just been used up
        return login_state.after
    wanted = link.project_id is not None or link.operator
    return address("", login_state.link) if wanted else login_state.after


def _provider(context: RequestContext) -> OidcProvider:
    for provider in context.services.providers():
        if provider.options.name == context.params["provider"]:
            return provider
    raise NotFound("There is no such page.")


async def _address(
    context: RequestContext,
    provider: OidcProvider,
    *,
    after: str = "",
    link: str = "",
    joins: bool = False,
) -> str:
    def state(attempt: SignInAttempt) -> str:
        return sealed(LoginState(attempt, after, link, joins), context.token)

    name = quote(provider.options.name)
    return await provider.begin(f"{context.base}{PREFIX}/sign-in/{name}/back", state)
