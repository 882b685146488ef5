"""The providers that people may sign in with, as the settings name them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from causerie.identity.provider import GroupRule, OidcProvider, ProviderOptions
from causerie.identity.web import IdentityHttp
from causerie.runtime.public_addresses import Network
from causerie.settings import IdentityProvider
from causerie.settings.credentials import Credentials


def identity_providers(
    listed: Sequence[IdentityProvider],
    credentials: Credentials,
    networks: Sequence[Network] | None = None,
) -> tuple[OidcProvider, ...]:
    """Return one for each; nobody is asked until somebody signs in.

    ``networks`` may be reached apart from public addresses; ``None``: any address.
    """
    return tuple(
        OidcProvider(
            ProviderOptions(
                name=each.name,
                title=each.title or each.name,
                issuer=each.issuer,
                client_id=each.client_id,
                client_secret=credentials.clients.get(each.name),
                scopes=each.scopes,
                domains=frozenset(each.allowed_domains) if each.sign_up else frozenset(),
                groups_claim=each.groups_claim,
                groups=[
                    GroupRule(one.group, one.project or "", one.role, one.operator)
                    for one in each.groups
                ],
            ),
            IdentityHttp(ca_file=each.ca_file, networks=networks),
            now=time.time,  # noqa: TID251 - id tokens carry times of the calendar
        )
        for each in listed
    )
