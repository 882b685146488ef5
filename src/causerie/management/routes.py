"""Table of operations and their handlers; nothing else."""

from __future__ import annotations

from causerie.management.alerts import AlertOperations
from causerie.management.catalog_import import CatalogImportOperations
from causerie.management.configuration import ConfigurationOperations
from causerie.management.keys import KeyOperations
from causerie.management.people import PeopleOperations
from causerie.management.projects import ProjectOperations
from causerie.management.providers import ProviderOperations
from causerie.management.route import AnyRoute, route
from causerie.management.usage import UsageOperations

_PROJECT = "/projects/{project}"
_MEMBER = "/projects/{project}/members/{user}"
_ENTRIES = "/configuration/entries"
_ENTRY = "/configuration/entries/{entry}"
_OFFER = "/projects/{project}/invitations/{invitation}"


def people_routes(desk: PeopleOperations) -> list[AnyRoute]:
    """Return the operations on the caller, and for operators on users."""
    return [
        route("GET /me", "Get the identity of the key", desk.me),
        route("GET /users", "List users", desk.list),
        route("POST /users 201", "Create a user", desk.create),
        route("GET /users/{user}", "Get a user", desk.see),
        route("POST /users/{user}/disable", "Disable a user", desk.disable),
        route("POST /users/{user}/enable", "Enable a user", desk.enable),
        route("PUT /users/{user}/operator", "Set whether a user is an operator", desk.set_operator),
        route("GET /users/{user}/bounds", "Get limits and budgets of a user", desk.bounds),
        route("PUT /users/{user}/bounds", "Set limits and budgets of a user", desk.set_bounds),
        route(
            "GET /users/{user}/spending", "Spending against the budgets of a user", desk.spending
        ),
        route("POST /users/{user}/password-link 201", "Create a password link", desk.reset),
        route(
            "DELETE /users/{user}/two-factor",
            "Remove two-factor authentication",
            desk.remove_factor,
        ),
        route("GET /invitations", "List invitations to the service", desk.invitations),
        route("POST /invitations 201", "Create an invitation to the service", desk.invite),
        route(
            "DELETE /invitations/{invitation}",
            "Withdraw an invitation to the service",
            desk.withdraw,
        ),
    ]


def project_routes(desk: ProjectOperations) -> list[AnyRoute]:
    return [
        route("GET /projects", "List projects", desk.list),
        route("POST /projects 201", "Create a project", desk.create),
        route(f"GET {_PROJECT}", "Get a project", desk.see),
        route(f"PATCH {_PROJECT}", "Rename a project", desk.rename),
        route(f"POST {_PROJECT}/archive", "Archive a project", desk.archive),
        route(f"POST {_PROJECT}/restore", "Restore a project", desk.restore),
        route(f"PUT {_PROJECT}/bounds", "Set limits and budgets of a project", desk.set_bounds),
        route(f"PUT {_PROJECT}/recording", "Set request logging of a project", desk.set_recording),
        route(f"GET {_PROJECT}/credits", "Get credits added, spent and left", desk.credits),
        route(f"POST {_PROJECT}/credits 201", "Add credits to a project", desk.put_credits),
        route(f"GET {_PROJECT}/members", "List members", desk.members),
        route(f"PATCH {_MEMBER}", "Change the role of a member", desk.change_member),
        route(f"DELETE {_MEMBER}", "Remove a member", desk.remove_member),
        route(f"GET {_PROJECT}/invitations", "List invitations to a project", desk.invitations),
        route(f"POST {_PROJECT}/invitations 201", "Create an invitation to a project", desk.invite),
        route(f"DELETE {_OFFER}", "Withdraw an invitation to a project", desk.withdraw),
    ]


def key_routes(desk: KeyOperations) -> list[AnyRoute]:
    return [
        route(f"GET {_PROJECT}/keys", "List keys", desk.list),
        route(f"POST {_PROJECT}/keys 201", "Create a key", desk.create),
        route("GET /keys/{key}", "Get a key", desk.see),
        route("PATCH /keys/{key}", "Change a key", desk.edit),
        route("POST /keys/{key}/rotate", "Rotate the secret of a key", desk.rotate),
        route("POST /keys/{key}/transfer", "Transfer a key to a member", desk.transfer),
        route("POST /keys/{key}/disable", "Disable a key", desk.disable),
        route("POST /keys/{key}/enable", "Enable a key", desk.enable),
        route("DELETE /keys/{key}", "Delete a key", desk.delete),
        route("GET /users/{user}/keys", "List the keys that derive from a user", desk.of_user),
    ]


def provider_routes(desk: ProviderOperations) -> list[AnyRoute]:
    """Providers and the routes of requests, for operators."""
    return [
        route("GET /providers", "List providers", desk.list),
        route("GET /providers/{provider}", "Get a provider and its capabilities", desk.see),
        route("POST /providers/{provider}/probe 201", "Probe a model of a provider", desk.probe),
        route("GET /providers/{provider}/probe", "Get the state of the last probe", desk.progress),
        route("POST /providers/{provider}/probe/cancel", "Cancel a probe", desk.cancel),
        route("POST /providers/{provider}/probe/use", "Apply the result of a probe", desk.use),
        route("POST /routes/explain", "Explain routing", desk.explain),
    ]


def configuration_routes(desk: ConfigurationOperations) -> list[AnyRoute]:
    return [
        route(f"GET {_ENTRIES}", "List entries of the configuration", desk.list),
        route(f"POST {_ENTRIES} 201", "Create an entry", desk.create),
        route(f"GET {_ENTRY}", "Get an entry of the database", desk.see),
        route(f"PUT {_ENTRY}", "Change an entry", desk.change),
        route(f"POST {_ENTRY}/enable", "Enable an entry", desk.enable),
        route(f"POST {_ENTRY}/disable", "Disable an entry", desk.disable),
        route(f"DELETE {_ENTRY}", "Delete an entry", desk.delete),
        route("POST /providers/test", "Test a provider", desk.test),
    ]


def catalog_import_routes(desk: CatalogImportOperations) -> list[AnyRoute]:
    """Return the operations that publish models of providers, for operators."""
    return [
        route(
            "GET /providers/{provider}/offers",
            "Compare a provider's list with the catalog",
            desk.offers,
        ),
        route(
            "POST /providers/{provider}/offers",
            "Publish models of a provider in the catalog",
            desk.publish,
        ),
    ]


def alert_routes(desk: AlertOperations) -> list[AnyRoute]:
    return [
        route("GET /alerts", "Alerts, their channels and deliveries", desk.see),
        route("POST /alerts/channels/{channel}/test", "Send a test by a channel", desk.test),
    ]


def usage_routes(desk: UsageOperations) -> list[AnyRoute]:
    return [
        route("GET /usage", "Usage and cost over time", desk.sums),
        route("GET /rankings", "Models or providers by tokens, over all projects", desk.ranking),
        route("GET /usage.csv", "Usage and cost as CSV", desk.export),
        route(
            f"GET {_PROJECT}/spending",
            "Spending against the budgets of a project",
            desk.project_spending,
        ),
        route(
            "GET /keys/{key}/spending", "Spending against the budgets of a key", desk.key_spending
        ),
        route("GET /usage/first-token", "Time to first token", desk.first_tokens),
        route("GET /requests", "Single requests", desk.requests),
        route("GET /audit", "Audit log", desk.audit),
    ]
