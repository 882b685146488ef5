"""A project: its members and invitations, limits and budgets, name, end, and log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causerie.accounts.audit import AuditEntry, AuditFilter
from causerie.accounts.guard import no_such
from causerie.accounts.keys import KeyState
from causerie.accounts.people import Member, Role
from causerie.accounts.recording import LONGEST_DAYS
from causerie.accounts.rights import Action, Extent, Part, extent
from causerie.accounts.spending import SpendingReader
from causerie.console.audit_page import AuditPage, show_audit
from causerie.console.bounds_form import CHOICES, LIMITS, BoundsRows
from causerie.console.pages import links
from causerie.console.ports import House
from causerie.console.visit import Visit
from causerie.errors import Forbidden, InvalidRequest, ServiceError

_HINTS = {
    Role.OWNER: "everything, owners included",
    Role.ADMIN: "members, all keys, usage and log",
    Role.MEMBER: "own keys, usage, the playground",
    Role.VIEWER: "sees keys and usage",
}
_RECENT = 8


class ProjectPages:
    """One project."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def show(self, visit: Visit) -> None:
        """The page."""
        await self._show(visit, None)

    async def rename(self, visit: Visit) -> None:
        """Give it another name."""
        project_id = (await visit.project()).project.id
        try:
            visit.check_form()
            await visit.accounts.projects.rename(visit.actor, project_id, visit.form.get("name"))
        except InvalidRequest as problem:
            await self._show(visit, problem)
            return
        visit.go(f"/projects/{project_id}", done="project-renamed")

    async def ask_archive(self, visit: Visit) -> None:
        """Whether it is meant."""
        await visit.project()
        await visit.check_right(Action.PROJECT_ARCHIVE)
        await visit.show("project/archive.html")

    async def archive(self, visit: Visit) -> None:
        """Stop all keys."""
        await self._archive(visit, archived=True)

    async def restore(self, visit: Visit) -> None:
        """Let them work again."""
        await self._archive(visit, archived=False)

    async def bounds(self, visit: Visit) -> None:
        """The form of limits and budgets."""
        view = await visit.project()
        await visit.check_right(Action.BOUNDS_SET)
        await visit.show("project/bounds.html", **self._choices(BoundsRows.of(view.bounds)))

    async def set_bounds(self, visit: Visit) -> None:
        """Take new ones."""
        project_id = (await visit.project()).project.id
        rows = BoundsRows.typed(visit.form)
        try:
            visit.check_form()
            await visit.accounts.projects.set_bounds(visit.actor, project_id, rows.bounds())
        except ServiceError as problem:
            await visit.show_problem("project/bounds.html", problem, **self._choices(rows))
            return
        visit.go(f"/projects/{project_id}", done="bounds-saved")

    async def record(self, visit: Visit) -> None:
        """Keep what is said, or not any more."""
        project_id = (await visit.project()).project.id
        off = visit.form.get("off") == "yes"
        try:
            days = None if off else _days(visit.form.get("days"))
            await visit.accounts.recordings.keep(visit.actor, project_id, days)
        except InvalidRequest as problem:
            await self._show(visit, problem)
            return
        visit.go(f"/projects/{project_id}", done="recording-off" if off else "recording-on")

    async def audit(self, visit: Visit) -> None:
        """Who did what in it."""
        project_id = (await visit.project()).project.id

        async def entries(filter: AuditFilter) -> Sequence[AuditEntry]:
            return await visit.accounts.projects.audit(visit.actor, project_id, filter)

        await show_audit(visit, AuditPage(f"/projects/{project_id}/audit", entries))

    async def _archive(self, visit: Visit, *, archived: bool) -> None:
        project_id = (await visit.project()).project.id
        await visit.accounts.projects.archive(visit.actor, project_id, archived=archived)
        done = "project-archived" if archived else "project-restored"
        visit.go(f"/projects/{project_id}", done=done)

    def _choices(self, rows: BoundsRows) -> dict[str, Any]:
        models = [str(entry["id"]) for entry in self._house.models()]
        kept = {row["model"] for row in (*rows.limits, *rows.budgets) if row["model"]}
        return {
            "rows": rows,
            "models": [*models, *sorted(kept - set(models))],
            "choices": CHOICES,
        }

    async def _show(self, visit: Visit, problem: InvalidRequest | None) -> None:
        view = await visit.project()
        id, projects = view.project.id, visit.accounts.projects
        reader = SpendingReader(visit.accounts.usage, visit.actor, id, visit.desk.clock())
        values: dict[str, Any] = {
            "view": view,
            "members": await projects.members(visit.actor, id),
            "invitations": await projects.invitations(visit.actor, id),
            "spending": await reader.of_project(view.bounds.budgets),
            "limits": LIMITS,
            "longest": LONGEST_DAYS,
            "entries": (),
            "name": visit.form.get("name") or view.project.name,
            "days": visit.form.get("days") or view.project.recording_days or "",
        }
        if await visit.may(Action.AUDIT_SEE):
            values["entries"] = await projects.audit(visit.actor, id, AuditFilter(limit=_RECENT))
        if problem is None:
            await visit.show("project/project.html", **values)
        else:
            await visit.show_problem("project/project.html", problem, **values)


class MemberPages:
    """Who is in a project, and who is invited."""

    async def ask_invitation(self, visit: Visit) -> None:
        """The form of an invitation."""
        await visit.project()
        await visit.check_right(Action.MEMBERS_INVITE)
        await visit.show("project/invite.html", email="", role=Role.MEMBER, hints=_HINTS)

    async def invite(self, visit: Visit) -> None:
        """Make an invitation, and show its link once."""
        project_id = (await visit.project()).project.id
        email, role = visit.form.get("email"), _role(visit)
        try:
            visit.check_form()
            made = await visit.accounts.projects.invite(
                visit.actor, project_id, role, email=email or None
            )
        except (InvalidRequest, Forbidden) as problem:
            await visit.show_problem(
                "project/invite.html", problem, email=email, role=role, hints=_HINTS
            )
            return
        await visit.show(
            "project/link.html",
            title="Your invitation",
            address=links.address(visit.base, made.token),
            link=made.link,
            back=f"/projects/{project_id}",
        )

    async def withdraw(self, visit: Visit) -> None:
        """Take an invitation back."""
        project_id = (await visit.project()).project.id
        await visit.accounts.projects.withdraw(visit.actor, project_id, visit.params["link"])
        visit.go(f"/projects/{project_id}", done="invitation-withdrawn")

    async def show(self, visit: Visit) -> None:
        """The form of a member's role."""
        member = await self._member(visit)
        await visit.check_right(Action.MEMBERS_CHANGE)
        held = await self._held(visit, member)
        await visit.show(
            "project/member.html", member=member, role=member.role, hints=_HINTS, **held
        )

    async def change(self, visit: Visit) -> None:
        """Make a member something else."""
        member, role = await self._member(visit), _role(visit)
        project_id = visit.params["project"]
        try:
            await visit.accounts.projects.change_role(visit.actor, project_id, member.user.id, role)
        except (InvalidRequest, Forbidden) as problem:
            held = await self._held(visit, member)
            await visit.show_problem(
                "project/member.html", problem, member=member, role=role, hints=_HINTS, **held
            )
            return
        visit.go(f"/projects/{project_id}", done="member-changed")

    async def ask_removal(self, visit: Visit) -> None:
        """Whether it is meant, and what becomes of their keys."""
        member = await self._member(visit)
        await visit.check_right(Action.MEMBERS_REMOVE, member.user.id)
        await visit.show("project/remove.html", member=member, **await self._held(visit, member))

    async def remove(self, visit: Visit) -> None:
        """Take somebody out; leaving is taking oneself out."""
        member, project_id = await self._member(visit), visit.params["project"]
        try:
            await visit.accounts.projects.remove(
                visit.actor,
                project_id,
                member.user.id,
                keys_to=visit.form.get("keys_to") or None,
            )
        except (InvalidRequest, Forbidden) as problem:
            held = await self._held(visit, member)
            await visit.show_problem("project/remove.html", problem, member=member, **held)
            return
        if member.user.id == visit.me.id and not visit.me.operator:
            visit.go("/", done="left")
        else:
            visit.go(f"/projects/{project_id}", done="member-removed")

    async def _held(self, visit: Visit, member: Member) -> dict[str, Any]:
        """The keys that derive from a member and work, and whom they could be transferred to."""
        project_id, now = visit.params["project"], visit.desk.clock()
        keys = await visit.accounts.keys.of(visit.actor, project_id)
        mine = [key for key in keys if key.person == member.user.id]
        others = await heirs(visit, project_id, but=member.user.id)
        return {
            "held": [key for key in mine if key.state(now) is KeyState.ACTIVE],
            "fates": [("", "Stop"), *((id, f"Transfer to {name}") for id, name in others)],
            "keys_to": visit.form.get("keys_to"),
        }

    async def _member(self, visit: Visit) -> Member:
        project_id = (await visit.project()).project.id
        for member in await visit.accounts.projects.members(visit.actor, project_id):
            if member.user.id == visit.params["user"]:
                return member
        raise no_such("member")


async def heirs(
    visit: Visit, project_id: str, *, but: str | None = None
) -> Sequence[tuple[str, str]]:
    """Return id and name of the members that a key may be transferred to, oneself first."""
    members = [
        each
        for each in await visit.accounts.projects.members(visit.actor, project_id)
        if each.user.id != but
        and each.user.disabled_at is None
        and extent(Action.KEYS_CREATE, [Part(each.role)]) is Extent.ALL
    ]
    members.sort(key=lambda each: each.user.id != visit.me.id)
    return [
        (each.user.id, "me" if each.user.id == visit.me.id else each.user.name) for each in members
    ]


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise InvalidRequest(f"Choose 1 to {LONGEST_DAYS} days.", param="days")
    return int(text)


def _role(visit: Visit) -> Role:
    try:
        return Role(visit.form.get("role"))
    except ValueError as failure:
        raise InvalidRequest("Choose a role.", param="role") from failure
