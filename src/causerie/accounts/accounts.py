"""Everything that people can do with accounts, in one hand, for pages and the management API."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.accounts.attempts import Attempts
from causerie.accounts.authorization import Clock
from causerie.accounts.credits import Credits
from causerie.accounts.entries import Entries
from causerie.accounts.group_memberships import GroupMemberships
from causerie.accounts.issuing import KeyIssuing
from causerie.accounts.operating import Operating
from causerie.accounts.passwords import Passwords
from causerie.accounts.person_bounds import PersonBounds
from causerie.accounts.ports import AccountStore
from causerie.accounts.profile import OwnAccount
from causerie.accounts.projects import Projects
from causerie.accounts.rankings import Rankings
from causerie.accounts.recordings import Recordings
from causerie.accounts.sign_in import SignIn
from causerie.accounts.sign_ups import SignUps
from causerie.accounts.sso_provisioning import SsoProvisioning
from causerie.accounts.summaries import Summaries
from causerie.accounts.usage import UsageReader, UsageReports
from causerie.accounts.users import Users


@dataclass(frozen=True, slots=True)
class Accounts:
    """The services of one store."""

    users: Users
    sign_ups: SignUps
    profile: OwnAccount
    sign_in: SignIn
    projects: Projects
    keys: KeyIssuing
    usage: UsageReports
    credits: Credits
    recordings: Recordings
    attempts: Attempts
    operating: Operating
    summaries: Summaries
    entries: Entries
    person_bounds: PersonBounds
    rankings: Rankings
    group_memberships: GroupMemberships

    @property
    def arrivals(self) -> SsoProvisioning:
        """The way in with an identity of another provider."""
        return SsoProvisioning(self.users, self.sign_in, self.group_memberships)

    @staticmethod
    def over(
        store: AccountStore, reader: UsageReader, passwords: Passwords, clock: Clock
    ) -> Accounts:
        usage = UsageReports(store, reader)
        return Accounts(
            users=Users(store, passwords, clock),
            sign_ups=SignUps(store, clock),
            profile=OwnAccount(store, passwords, clock),
            sign_in=SignIn(store, passwords, clock),
            projects=Projects(store, clock),
            keys=KeyIssuing(store, clock),
            usage=usage,
            credits=Credits(store, reader, clock),
            recordings=Recordings(store, clock),
            attempts=Attempts(store, clock),
            operating=Operating(store, clock),
            summaries=Summaries(store, usage, clock),
            entries=Entries(store, clock),
            person_bounds=PersonBounds(store, reader, clock),
            rankings=Rankings(store, reader, clock),
            group_memberships=GroupMemberships(store, clock),
        )
