"""Table of operations and their handlers; nothing else."""

from __future__ import annotations

from types import NoneType

from causerie.management.alerts import AlertOperations
from causerie.management.bodies import (
    BoundsBody,
    ChangeMember,
    CreateKey,
    CreateProject,
    CreateUser,
    EditKey,
    InviteMember,
    InviteUser,
    NoBody,
    PutCredits,
    RenameProject,
    RotateKey,
    SetOperator,
    SetRecording,
    TransferKey,
)
from causerie.management.catalog_import import (
    CatalogImportOperations,
    OfferList,
    OfferQuery,
    PublishedList,
    PublishModels,
)
from causerie.management.configuration import (
    ChangeEntry,
    ConfigurationOperations,
    CreateEntry,
    EntryList,
    TestProvider,
)
from causerie.management.keys import KeyOperations
from causerie.management.lists import (
    AuditList,
    KeyList,
    LatencyList,
    LinkList,
    MemberList,
    ProjectList,
    RequestList,
    UsageList,
    UserList,
)
from causerie.management.people import PeopleOperations
from causerie.management.projects import ProjectOperations
from causerie.management.providers import (
    ExplainRoute,
    ProbeModel,
    ProviderList,
    ProviderOperations,
    UseProbe,
)
from causerie.management.queries import (
    AuditQuery,
    LatencySpan,
    Leaving,
    NoQuery,
    PageQuery,
    RankingQuery,
    RequestPage,
    UsagePage,
    UsageSpan,
)
from causerie.management.reports import KeySpending, PersonSpending, ProjectSpending, RankingList
from causerie.management.route import AnyRoute, route
from causerie.management.usage import UsageOperations
from causerie.management.views import (
    BoundsView,
    CreditsView,
    CreditView,
    KeyView,
    Me,
    NarrowedView,
    NewKeyView,
    NewLinkView,
    ProjectDetails,
    ProjectView,
    UserView,
)
from causerie.operations.alerts import AlertsView, ChannelTest
from causerie.operations.configuring import EntryView
from causerie.operations.explanation import RoutingExplanation
from causerie.operations.trial import Trial
from causerie.operations.views import AppliedResult, ProbeView, ProviderView
from causerie.web.exports import Export

_PROJECT = "/projects/{project}"
_MEMBER = "/projects/{project}/members/{user}"
_ENTRIES = "/configuration/entries"
_ENTRY = "/configuration/entries/{entry}"
_OFFER = "/projects/{project}/invitations/{invitation}"


# fmt: off
def people_routes(desk: PeopleOperations) -> list[AnyRoute]:
    """Return the operations on the caller, and for operators on users."""
    return [
        route("GET /me", "Get the identity of the key", desk.me, NoQuery, NoBody, Me),
        route("GET /users", "List users", desk.list, PageQuery, NoBody, UserList),
        route("POST /users 201", "Create a user", desk.create, NoQuery, CreateUser, UserView),
        route("GET /users/{user}", "Get a user", desk.see, NoQuery, NoBody, UserView),
        route("POST /users/{user}/disable", "Disable a user",
              desk.disable, NoQuery, NoBody, UserView),
        route("POST /users/{user}/enable", "Enable a user",
              desk.enable, NoQuery, NoBody, UserView),
        route("PUT /users/{user}/operator", "Set whether a user is an operator",
              desk.set_operator, NoQuery, SetOperator, UserView),
        route("GET /users/{user}/bounds", "Get limits and budgets of a user",
              desk.bounds, NoQuery, NoBody, BoundsView),
        route("PUT /users/{user}/bounds", "Set limits and budgets of a user",
              desk.set_bounds, NoQuery, BoundsBody, BoundsView),
        route("GET /users/{user}/spending", "Spending against the budgets of a user",
              desk.spending, NoQuery, NoBody, PersonSpending),
        route("POST /users/{user}/password-link 201", "Create a password link",
              desk.reset, NoQuery, NoBody, NewLinkView),
        route("DELETE /users/{user}/two-factor", "Remove two-factor authentication",
              desk.remove_factor, NoQuery, NoBody, NoneType),
        route("GET /invitations", "List invitations to the service",
              desk.invitations, PageQuery, NoBody, LinkList),
        route("POST /invitations 201", "Create an invitation to the service",
              desk.invite, NoQuery, InviteUser, NewLinkView),
        route("DELETE /invitations/{invitation}", "Withdraw an invitation to the service",
              desk.withdraw, NoQuery, NoBody, NoneType),
    ]


def project_routes(desk: ProjectOperations) -> list[AnyRoute]:
    """Projects and their members."""
    return [
        route("GET /projects", "List projects", desk.list, PageQuery, NoBody, ProjectList),
        route("POST /projects 201", "Create a project",
              desk.create, NoQuery, CreateProject, ProjectView),
        route(f"GET {_PROJECT}", "Get a project", desk.see, NoQuery, NoBody, ProjectDetails),
        route(f"PATCH {_PROJECT}", "Rename a project",
              desk.rename, NoQuery, RenameProject, ProjectView),
        route(f"POST {_PROJECT}/archive", "Archive a project",
              desk.archive, NoQuery, NoBody, ProjectView),
        route(f"POST {_PROJECT}/restore", "Restore a project",
              desk.restore, NoQuery, NoBody, ProjectView),
        route(f"PUT {_PROJECT}/bounds", "Set limits and budgets of a project",
              desk.set_bounds, NoQuery, BoundsBody, BoundsView),
        route(f"PUT {_PROJECT}/recording", "Set request logging of a project",
              desk.set_recording, NoQuery, SetRecording, ProjectView),
        route(f"GET {_PROJECT}/credits", "Get credits added, spent and left",
              desk.credits, NoQuery, NoBody, CreditsView),
        route(f"POST {_PROJECT}/credits 201", "Add credits to a project",
              desk.put_credits, NoQuery, PutCredits, CreditView),
        route(f"GET {_PROJECT}/members", "List members", desk.members, PageQuery, NoBody,
              MemberList),
        route(f"PATCH {_MEMBER}", "Change the role of a member",
              desk.change_member, NoQuery, ChangeMember, NarrowedView),
        route(f"DELETE {_MEMBER}", "Remove a member",
              desk.remove_member, Leaving, NoBody, NarrowedView),
        route(f"GET {_PROJECT}/invitations", "List invitations to a project",
              desk.invitations, PageQuery, NoBody, LinkList),
        route(f"POST {_PROJECT}/invitations 201", "Create an invitation to a project",
              desk.invite, NoQuery, InviteMember, NewLinkView),
        route(f"DELETE {_OFFER}", "Withdraw an invitation to a project",
              desk.withdraw, NoQuery, NoBody, NoneType),
    ]


def key_routes(desk: KeyOperations) -> list[AnyRoute]:
    """Keys of projects."""
    return [
        route(f"GET {_PROJECT}/keys", "List keys", desk.list, PageQuery, NoBody, KeyList),
        route(f"POST {_PROJECT}/keys 201", "Create a key", desk.create, NoQuery, CreateKey,
              NewKeyView),
        route("GET /keys/{key}", "Get a key", desk.see, NoQuery, NoBody, KeyView),
        route("PATCH /keys/{key}", "Change a key", desk.edit, NoQuery, EditKey, KeyView),
        route("POST /keys/{key}/rotate", "Rotate the secret of a key",
              desk.rotate, NoQuery, RotateKey, NewKeyView),
        route("POST /keys/{key}/transfer", "Transfer a key to a member",
              desk.transfer, NoQuery, TransferKey, KeyView),
        route("POST /keys/{key}/disable", "Disable a key", desk.disable, NoQuery, NoBody, KeyView),
        route("POST /keys/{key}/enable", "Enable a key", desk.enable, NoQuery, NoBody, KeyView),
        route("DELETE /keys/{key}", "Delete a key", desk.delete, NoQuery, NoBody, NoneType),
        route("GET /users/{user}/keys", "List the keys that derive from a user",
              desk.of_user, PageQuery, NoBody, KeyList),
    ]


def provider_routes(desk: ProviderOperations) -> list[AnyRoute]:
    """Providers and the routes of requests, for operators."""
    return [
        route("GET /providers", "List providers", desk.list, NoQuery, NoBody, ProviderList),
        route("GET /providers/{provider}", "Get a provider and its capabilities",
              desk.see, NoQuery, NoBody, ProviderView),
        route("POST /providers/{provider}/probe 201", "Probe a model of a provider",
              desk.probe, NoQuery, ProbeModel, ProbeView),
        route("GET /providers/{provider}/probe", "Get the state of the last probe",
              desk.progress, NoQuery, NoBody, ProbeView),
        route("POST /providers/{provider}/probe/cancel", "Cancel a probe",
              desk.cancel, NoQuery, NoBody, ProbeView),
        route("POST /providers/{provider}/probe/use", "Apply the result of a probe",
              desk.use, NoQuery, UseProbe, AppliedResult),
        route("POST /routes/explain", "Explain routing",
              desk.explain, NoQuery, ExplainRoute, RoutingExplanation),
    ]


def configuration_routes(desk: ConfigurationOperations) -> list[AnyRoute]:
    """Return the operations on the configuration, for operators."""
    return [
        route(f"GET {_ENTRIES}", "List entries of the configuration",
              desk.list, NoQuery, NoBody, EntryList),
        route(f"POST {_ENTRIES} 201", "Create an entry",
              desk.create, NoQuery, CreateEntry, EntryView),
        route(f"GET {_ENTRY}", "Get an entry of the database",
              desk.see, NoQuery, NoBody, EntryView),
        route(f"PUT {_ENTRY}", "Change an entry",
              desk.change, NoQuery, ChangeEntry, EntryView),
        route(f"POST {_ENTRY}/enable", "Enable an entry",
              desk.enable, NoQuery, NoBody, EntryView),
        route(f"POST {_ENTRY}/disable", "Disable an entry",
              desk.disable, NoQuery, NoBody, EntryView),
        route(f"DELETE {_ENTRY}", "Delete an entry",
              desk.delete, NoQuery, NoBody, NoneType),
        route("POST /providers/test", "Test a provider",
              desk.test, NoQuery, TestProvider, Trial),
    ]


def catalog_import_routes(desk: CatalogImportOperations) -> list[AnyRoute]:
    """Return the operations that publish models of providers, for operators."""
    return [
        route("GET /providers/{provider}/offers", "Compare a provider's list with the catalog",
              desk.offers, OfferQuery, NoBody, OfferList),
        route("POST /providers/{provider}/offers", "Publish models of a provider in the catalog",
              desk.publish, NoQuery, PublishModels, PublishedList),
    ]


def alert_routes(desk: AlertOperations) -> list[AnyRoute]:
    """Return the operations on alerts, for operators."""
    return [
        route("GET /alerts", "Alerts, their channels and deliveries",
              desk.see, NoQuery, NoBody, AlertsView),
        route("POST /alerts/channels/{channel}/test", "Send a test by a channel",
              desk.test, NoQuery, NoBody, ChannelTest),
    ]


def usage_routes(desk: UsageOperations) -> list[AnyRoute]:
    """Return the operations on usage and the audit log."""
    return [
        route("GET /usage", "Usage and cost over time", desk.sums, UsagePage, NoBody, UsageList),
        route("GET /rankings", "Models or providers by tokens, over all projects",
              desk.ranking, RankingQuery, NoBody, RankingList),
        route("GET /usage.csv", "Usage and cost as CSV",
              desk.export, UsageSpan, NoBody, Export),
        route(f"GET {_PROJECT}/spending", "Spending against the budgets of a project",
              desk.project_spending, NoQuery, NoBody, ProjectSpending),
        route("GET /keys/{key}/spending", "Spending against the budgets of a key",
              desk.key_spending, NoQuery, NoBody, KeySpending),
        route("GET /usage/first-token", "Time to first token",
              desk.first_tokens, LatencySpan, NoBody, LatencyList),
        route("GET /requests", "Single requests", desk.requests, RequestPage, NoBody, RequestList),
        route("GET /audit", "Audit log", desk.audit, AuditQuery, NoBody, AuditList),
    ]
