"""Everything that people can do with accounts, in one hand, for pages and the management API."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.hosted.accounts.authorization import Clock
from causerie.hosted.accounts.issuing import KeyIssuing
from causerie.hosted.accounts.operating import Entries, Operating
from causerie.hosted.accounts.passwords import Passwords
from causerie.hosted.accounts.ports import AccountStore
from causerie.hosted.accounts.projects import Projects
from causerie.hosted.accounts.recordings import Recordings
from causerie.hosted.accounts.sign_in import Attempts, OwnAccount, SignIn
from causerie.hosted.accounts.spending import PersonBounds, Summaries
from causerie.hosted.accounts.sso_provisioning import GroupMemberships, SsoProvisioning
from causerie.hosted.accounts.statement import Credits
from causerie.hosted.accounts.usage import Rankings, UsageReader, UsageReports
from causerie.hosted.accounts.users import SignUps, Users


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
