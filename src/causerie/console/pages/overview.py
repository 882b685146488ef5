"""The overview of a project: today against its budgets, latest errors, and the first steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from causerie.accounts.people import Project
from causerie.accounts.rights import Action
from causerie.accounts.spending import SpendingReader
from causerie.accounts.usage import RecordFilter, Step, UsageQuery, UsageSum
from causerie.console.catalogue import StatusBadge, service_badges, troubled
from causerie.console.explanations import RequestExplanation, explain
from causerie.console.pages.usage import total
from causerie.console.ports import ServiceView
from causerie.console.request_context import RequestContext

_ERRORS = 5
_ERROR_DAYS = 7
_TROUBLED = 8


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A step from a new project to its first answer; ``path`` leads to where it is taken."""

    title: str
    hint: str
    done: bool
    path: str


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """State of the targets of the whole service, and its counts of today."""

    ready: int
    troubled: Sequence[StatusBadge]
    today: UsageSum

    @property
    def shown(self) -> Sequence[StatusBadge]:
        """Return those that the page has room for."""
        return self.troubled[:_TROUBLED]


class OverviewPages:
    """The page that people see first."""

    def __init__(self, service_view: ServiceView) -> None:
        self._service_view = service_view

    async def show(self, context: RequestContext) -> None:
        view = await context.project()
        project, now = view.project, context.services.clock()
        reader = SpendingReader(context.accounts.usage, context.actor, project.id, now)
        steps = await self._steps(context, project)
        await context.show(
            "overview.html",
            today=await _used(context, project.id, _midnight(now)),
            spending=await reader.of_project(view.bounds.budgets),
            own_spending=await context.accounts.person_bounds.spending(
                context.actor, context.me.id
            ),
            errors=await _errors(context, project.id),
            error_days=_ERROR_DAYS,
            steps=() if all(each.done for each in steps) else steps,
            health=await self._health(context) if await context.may(Action.SERVICE_SEE) else None,
        )

    async def _steps(self, context: RequestContext, project: Project) -> Sequence[FirstStep]:
        base = f"/projects/{project.id}"
        ever = await _used(context, project.id, project.created_at)
        keys = await context.accounts.keys.of(context.actor, project.id)
        models = bool(self._service_view.models())
        return (
            await self._first_step(context, f"{base}/models", models=models),
            FirstStep(
                "Create an API key",
                "Programs send it with every request.",
                bool(keys),
                f"{base}/keys",
            ),
            FirstStep(
                "Send the first request",
                "With the key, or from the playground.",
                ever.requests > 0,
                f"{base}/playground",
            ),
        )

    async def _first_step(self, context: RequestContext, path: str, *, models: bool) -> FirstStep:
        """Return the step to a model, which operators take on the page of providers."""
        hint = "There are models to ask." if models else "An operator does this."
        if not models and await context.may(Action.CONFIGURATION_CHANGE):
            hint = "Choose a provider and paste its API key, or add a model that this service runs."
            if self._service_view.operations is not None:
                path = "/operator/providers/add/new"
        return FirstStep("Add a provider or a model", hint, models, path)

    async def _health(self, context: RequestContext) -> ServiceHealth:
        badges = service_badges(self._service_view)
        ailing = troubled(badges)
        today = await _used(context, None, _midnight(context.services.clock()))
        return ServiceHealth(len(badges) - len(ailing), ailing, today)


async def _used(context: RequestContext, project: str | None, since: datetime) -> UsageSum:
    """Sum up from a time on, to the end of today."""
    until = _midnight(context.services.clock()) + timedelta(days=1)
    question = UsageQuery(_midnight(since), until, Step.ALL)
    usage = context.accounts.usage
    if project is None:
        return total(await usage.of_all(context.actor, question))
    return total(await usage.of_project(context.actor, project, question))


async def _errors(context: RequestContext, project: str) -> Sequence[RequestExplanation]:
    now = context.services.clock()
    wanted = RecordFilter(
        now - timedelta(days=_ERROR_DAYS),
        now + timedelta(seconds=1),
        failures_only=True,
        limit=_ERRORS,
    )
    found = await context.accounts.usage.requests(context.actor, project, wanted)
    return [explain(one) for one in found]


def _midnight(at: datetime) -> datetime:
    """The start of its day; days are in UTC."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
