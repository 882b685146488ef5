"""Policies: the defaults of new people and projects, and rules for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from causerie.settings.problems import Broken, repeated
from causerie.settings.values import DoorName, LimitSettings, ModelPattern, Money


class PolicySettings(Struct, frozen=True, kw_only=True):
    """The policy of people or of projects: what each new one begins with; operators change it for
    single ones. Needs keys of accounts."""

    name: Literal["people", "projects"]
    """`people`: each new person, in all projects; `projects`: each new project."""
    budget: Money | None = None
    """Money that each may spend in a period, like `"25"`. Unset: no budget."""
    period: Literal["day", "week", "month", "never"] = "month"
    """When the budget begins anew, in UTC."""
    soft: bool = False
    """Whether the budget refuses nothing and is only notified."""
    limits: LimitSettings = LimitSettings()
    models: tuple[ModelPattern, ...] | None = None
    """Models that each may use; one with `*` at the end stands for all that begin so. Unset:
    all."""
    doors: tuple[DoorName, ...] | None = None
    """Doors that each may use. Unset: all."""
    providers: tuple[DoorName, ...] | None = None
    """Providers whose models each may use; `causerie` stands for models of this service. Unset:
    all."""
    prompt_price: Money | None = None
    """Highest price of 1M input tokens. Unset: any."""
    completion_price: Money | None = None
    """Highest price of 1M output tokens. Unset: any."""
    personal_projects: Literal["sign_up", "never"] = "sign_up"
    """For `people`: with `sign_up`, people who sign up get a project of their own; with `never`
    they come only into projects of their groups or by invitation."""
    personal_project_name: Annotated[str, Meta(min_length=1, max_length=100)] = "{name}'s project"
    """For `people`: its name; `{name}` and `{email}` are replaced by theirs."""
    role: Literal["owner", "admin", "member", "viewer"] = "owner"
    """For `people`: their role in it. Only owners and admins invite others and turn on request
    logging."""
    request_logging: Literal["admins", "owners", "nobody"] = "admins"
    """For `projects`, old ones too: who may turn on request logging: `admins` (owners, admins and
    management keys), `owners`, or `nobody`, and then nothing is logged."""


POLICIES = {each: PolicySettings(name=each) for each in ("people", "projects")}
_OF = {
    "personal_projects": "people",
    "personal_project_name": "people",
    "role": "people",
    "request_logging": "projects",
}


def policy_rules(policies: Sequence[PolicySettings]) -> Iterator[Broken]:
    """Yield a policy that is there twice, and settings that mean nothing in one."""
    places = [(("policies", index, "name"), each.name) for index, each in enumerate(policies)]
    for at, name, other in repeated(places):
        yield Broken(at, f'"{name}" is there already; join both', other)
    for index, each in enumerate(policies):
        for name, kind in _OF.items():
            if each.name != kind and getattr(each, name) != getattr(POLICIES[kind], name):
                yield Broken(("policies", index, name), f"is a setting of the policy of {kind}")


def policy_of(policies: Sequence[PolicySettings], name: str) -> PolicySettings:
    """Return the policy of this name, or one without settings."""
    return next((each for each in policies if each.name == name), POLICIES[name])
