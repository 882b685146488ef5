"""``causerie projects``: what keys, members and usage belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causerie.accounts.people import Project
from causerie.cli.accounts import day
from causerie.cli.tables import print_table

if TYPE_CHECKING:
    pass


def show_projects(projects: list[Project]) -> None:
    rows = [
        (
            each.name,
            "active" if each.archived_at is None else f"archived {day(each.archived_at)}",
            day(each.created_at),
            each.id,
        )
        for each in projects
    ]
    print_table(("NAME", "STATE", "MADE", "ID"), rows)
