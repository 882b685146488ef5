"""Everything that people can do with accounts, in one hand, for pages and the management API."""

from __future__ import annotations

from dataclasses import dataclass

from causerie.accounts.arrival import Arrivals
from causerie.accounts.attempts import Attempts
from causerie.accounts.credits import Credits
from causerie.accounts.guard import Clock
from causerie.accounts.issuing import Keys
from causerie.accounts.operating import Operating
from causerie.accounts.passwords import Passwords
from causerie.accounts.ports import Store
from causerie.accounts.profile import Profile
from causerie.accounts.projects import Projects
from causerie.accounts.recordings import Recordings
from causerie.accounts.sign_in import SignIn
from causerie.accounts.sign_ups import SignUps
from causerie.accounts.usage import Usage, UsageReader
from causerie.accounts.users import Users


@dataclass(frozen=True, slots=True)
class Accounts:
    """The services of one store."""

    users: Users
    sign_ups: SignUps
    profile: Profile
    sign_in: SignIn
    projects: Projects
    keys: Keys
    usage: Usage
    credits: Credits
    recordings: Recordings
    attempts: Attempts
    operating: Operating

    @property
    def arrivals(self) -> Arrivals:
        """The way in with an identity of another provider."""
        return Arrivals(self.users, self.sign_in)

    @staticmethod
    def over(store: Store, reader: UsageReader, passwords: Passwords, clock: Clock) -> Accounts:
        """All of them over this store."""
        return Accounts(
            users=Users(store, passwords, clock),
            sign_ups=SignUps(store, clock),
            profile=Profile(store, passwords, clock),
            sign_in=SignIn(store, passwords, clock),
            projects=Projects(store, clock),
            keys=Keys(store, clock),
            usage=Usage(store, reader),
            credits=Credits(store, reader, clock),
            recordings=Recordings(store, clock),
            attempts=Attempts(store, clock),
            operating=Operating(store, clock),
        )
