"""All services of accounts over one store, for pages and the management API."""

from __future__ import annotations

from causerie.hosted.accounts.authorization import Policies
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
    def __init__(self, store: SqlStore, passwords: Passwords) -> None:
        self.users = Users(store, passwords)
        self.sign_ups = SignUps(store)
        self.profile = OwnAccount(store, passwords)
        self.sign_in = SignIn(store, passwords)
        self.projects = Projects(store)
        self.keys = KeyIssuing(store)
        self.operator_keys = OperatorKeyIssuing(store)
        self.scope_budgets = ScopeBudgets(store)
        self.bulk_bounds = BulkBounds(store)
        self.access = AccessRules(store)
        self.usage = UsageReports(store)
        self.credits = Credits(store)
        self.recordings = Recordings(store)
        self.attempts = Attempts(store)
        self.summaries = Summaries(store)
        self.entries = Entries(store)
        self.person_bounds = PersonBounds(store)
        self.rankings = Rankings(store)
        self._services_with_policies = (self.users, self.projects, self.recordings)
        memberships = GroupMemberships(store)
        self.arrivals = SsoProvisioning(self.users, self.sign_in, memberships)
        self.provisioning = Provisioning(store, self.users, memberships)

    def govern(self, policies: Policies) -> None:
        for each in self._services_with_policies:
            each.policies = policies
