"""All services of accounts over one store, for pages and the management API."""

from __future__ import annotations

from causerie.hosted.accounts.authorization import Clock, Policies
from causerie.hosted.accounts.issuing import KeyIssuing, OperatorKeyIssuing
from causerie.hosted.accounts.operating import Entries
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.projects import AccessRules, Projects
from causerie.hosted.accounts.provisioning import GroupMemberships, Provisioning, SsoProvisioning
from causerie.hosted.accounts.recordings import Recordings
from causerie.hosted.accounts.reports import Rankings, UsageReports
from causerie.hosted.accounts.sign_in import Attempts, OwnAccount, SignIn
from causerie.hosted.accounts.spending import BulkBounds, PersonBounds, ScopeBudgets, Summaries
from causerie.hosted.accounts.statement import Credits
from causerie.hosted.accounts.users import SignUps, Users
from causerie.hosted.store.accounts import SqlStore


class Accounts:
    """The services of one store."""

    def __init__(self, store: SqlStore, passwords: Passwords, clock: Clock) -> None:
        self.users = Users(store, passwords, clock)
        self.sign_ups = SignUps(store, clock)
        self.profile = OwnAccount(store, passwords, clock)
        self.sign_in = SignIn(store, passwords, clock)
        self.projects = Projects(store, clock)
        self.keys = KeyIssuing(store, clock)
        self.operator_keys = OperatorKeyIssuing(store, clock)
        self.scope_budgets = ScopeBudgets(store, clock)
        self.bulk_bounds = BulkBounds(store, clock)
        self.access = AccessRules(store, clock)
        self.usage = UsageReports(store, clock)
        self.credits = Credits(store, clock)
        self.recordings = Recordings(store, clock)
        self.attempts = Attempts(store, clock)
        self.summaries = Summaries(store, clock)
        self.entries = Entries(store, clock)
        self.person_bounds = PersonBounds(store, clock)
        self.rankings = Rankings(store, clock)
        self._governed = (self.users, self.projects, self.recordings)
        memberships = GroupMemberships(store, clock)
        self.arrivals = SsoProvisioning(self.users, self.sign_in, memberships)
        self.provisioning = Provisioning(store, clock, self.users, memberships)

    def govern(self, policies: Policies) -> None:
        """Put policies in force."""
        for each in self._governed:
            each.policies = policies
