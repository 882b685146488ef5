"""The policies of accounts, from the settings."""

from __future__ import annotations

from decimal import Decimal

from msgspec import structs

from causerie.access.allowed import Access
from causerie.hosted.accounts.bounds import Budget, BudgetPeriod, Limit, LimitsAndBudgets
from causerie.hosted.accounts.people import Role, RoleColumn
from causerie.hosted.accounts.policies import LOGGERS, Beginning, Policies
from causerie.protocol.numbers import money
from causerie.settings.console import UNLIMITED
from causerie.settings.policies import PolicySettings, policy_of
from causerie.settings.tree import Settings
from causerie.settings.values import LimitSettings

_LOGGERS = {"admins": LOGGERS, "owners": frozenset({RoleColumn.OWNER}), "nobody": frozenset()}


def policies(settings: Settings) -> Policies:
    """Return what new people and projects begin with."""
    people = policy_of(settings.policies, "people")
    projects = policy_of(settings.policies, "projects")
    of_project, amount = _beginning(projects), settings.console.new_project_budget
    personal: Beginning | None = None
    credits = money(settings.console.new_project_credits)
    if people.personal_projects == "sign_up":
        personal = of_project
        bound = amount != "0" or (projects.budget is None and not credits)
        if amount != UNLIMITED and bound:
            own = LimitsAndBudgets(budgets=(Budget(money(amount), BudgetPeriod.MONTH),))
            personal = Beginning(own.added_to(of_project.bounds), of_project.access)
    return Policies(
        person=_beginning(people),
        project=of_project,
        personal_project=personal,
        personal_project_name=people.personal_project_name,
        personal_role=Role(people.role),
        personal_credits=credits,
        own_projects=settings.console.projects_per_person,
        loggers=frozenset[RoleColumn](_LOGGERS[projects.request_logging]),
    )


def _beginning(policy: PolicySettings) -> Beginning:
    budgets: tuple[Budget, ...] = ()
    if policy.budget is not None:
        period = BudgetPeriod(policy.period)
        budgets = (Budget(money(policy.budget), period, soft=policy.soft),)
    limited = policy.limits != LimitSettings()
    limits = (Limit(**structs.asdict(policy.limits)),) if limited else ()
    access = Access(
        _names(policy.models),
        _names(policy.doors),
        _names(policy.providers),
        _price(policy.prompt_price),
        _price(policy.completion_price),
    )
    return Beginning(LimitsAndBudgets(limits, budgets), access)


def _names(given: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(given)


def _price(given: str | None) -> Decimal | None:
    return None if given is None else money(given)
