"""People who talk with models without a key, in the pages that they are signed in to."""

from __future__ import annotations

from causerie.accounts.key_cache import AccountCaller
from causerie.accounts.keys import ApiKey, Grant, Purpose
from causerie.accounts.people import User
from causerie.accounts.projects import PlaygroundProject


def visitor(user: User, place: PlaygroundProject, door: str) -> AccountCaller:
    """A caller at whose project's expense it is, within the bounds of project and person."""
    project = place.project
    key = ApiKey(
        id="",
        project_id=project.id,
        created_by=user.id,
        name=user.name,
        purpose=Purpose.INFERENCE,
        doors=None,
        models=None,
        created_at=user.created_at,
        person=user.id,
    )
    grant = Grant(
        key=key,
        works=True,
        until=None,
        project_bounds=place.bounds,
        person_bounds=place.person_bounds,
    )
    return AccountCaller(
        key="",
        name=user.name,
        door=door,
        project=project.id,
        user=user.id,
        recorded=project.recording_days is not None,
        grant=grant,
    )
