"""Entries of the audit log in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from accountkit import World
from casekit import each_of

import causerie
from causerie.hosted.accounts.operating import Entries, EntryChange
from causerie.hosted.accounts.people import SYSTEM, Action, actor_of
from causerie.hosted.accounts.records import (
    AuditEntry,
    AuditFilter,
    AuditKind,
    EntryDraft,
    both,
    difference,
)
from causerie.hosted.console.audit import SENTENCES, AuditWords

_AT = datetime(2026, 11, 20, tzinfo=UTC)
_KINDS = r"key|member|project|credits|user|provider|alerts"


def _said(words: AuditWords, entry: AuditEntry) -> str:
    return "".join(part.words for part in words.row(entry).sentence)


def test_every_action_has_a_sentence() -> None:
    """Whoever adds an action to the log adds its sentence."""
    source = Path(causerie.__file__).parent
    files = [
        *(source / "hosted" / "accounts").glob("*.py"),
        source / "composition" / "operations.py",
    ]
    found = {
        name
        for file in files
        for name in re.findall(rf'"((?:{_KINDS})\.[a-z_]+)"', file.read_text(encoding="utf-8"))
    } - {str(each) for each in Action}
    assert len(found) > 30
    assert found <= SENTENCES.keys()
    assert all(kind.title_words for kind in AuditKind)


@each_of(
    ("action", "subject", "details", "words", "path"),
    [
        ("key.create", "ck_1", {"name": "Reports"}, "created the key Reports in Atlas", ""),
        ("user.operator", "usr_2", {"operator": "False"}, "removed the operator role of usr_2", ""),
        ("user.operator", "usr_1", {"by": "user:usr_2"}, "became an operator", ""),
        (
            "member.invite", "lnk_1", {"email": "anybody"},
            "invited anyone with the link to Atlas", "",
        ),
        (
            "configuration.change", "alias:a/b", {}, "changed the alias a/b in Atlas",
            "/operator/aliases?find=a%2Fb",
        ),
        ("configuration.delete", "alias:a/b", {}, "deleted the alias a/b in Atlas", ""),
        (
            "provider.probe", "north", {}, "started a probe of the provider north in Atlas",
            "/operator/providers#provider-north",
        ),
        ("made.up", "thing", {}, "made.up thing in Atlas", ""),
    ],
)  # fmt: skip
def test_sentences(
    action: str, subject: str, details: dict[str, str], words: str, path: str
) -> None:
    """Of the log of the whole service; a path leads only to what is there."""
    entry = AuditEntry(_AT, "user:usr_1", "ada", action, subject, "prj_1", details)
    told = AuditWords({}, {"prj_1": "Atlas"})
    if "user." in action:
        words += " in Atlas"
    assert _said(told, entry) == words
    paths = {part.path for part in told.row(entry).sentence} - {"", "/projects/prj_1"}
    assert paths == ({path} if path else set())


def test_a_change_is_shown_with_both_values() -> None:
    details = {
        "name": difference("Old", "New"), "bounds": difference("none", "5 requests_per_minute"),
        "to": "usr_2", "grace_seconds": "86400",
    }  # fmt: skip
    entry = AuditEntry(_AT, "user:usr_1", "ada", "key.edit", "ck_1", "prj_1", details)
    shown = AuditWords({"usr_2": "bob"}, whole=False).row(entry).changes
    assert [(each.before, each.value) for each in shown] == [
        ("Old", "New"),
        ("none", "5 requests per minute"),
        (None, "bob"),
        (None, "24 hours"),
    ]


def test_a_value_with_an_arrow_in_it_is_shown_as_it_is() -> None:
    assert both(difference("a -> b", "c")) is None


async def test_entries_are_found_by_kind_with_the_names_of_today(lite: World) -> None:
    owner = await lite.person("ada")
    project = await lite.project(owner=owner)
    key = await lite.key(project, owner, name="First")
    await lite.keys.delete(actor_of(owner), key.key.id)
    draft = EntryDraft("provider", "north", {"max_concurrent": 4, "headers": {"pin": "1234"}})
    entries = Entries(lite.store)
    entry = entries.drafted(SYSTEM, draft)
    await entries.write(SYSTEM, [EntryChange(None, entry)])
    body = {
        "max_concurrent": 8,
        "headers": {"pin": "5678"},
        "models": [{"id": "m", "cost": {"prompt": "0.2"}}],
    }
    changed = entries.changed(SYSTEM, entry, EntryDraft("provider", "north", body))
    await entries.write(SYSTEM, [EntryChange(entry, changed)])

    async def of(kind: AuditKind) -> list[AuditEntry]:
        return list(await lite.projects.audit(SYSTEM, None, AuditFilter(kind=kind)))

    deleted, made = await of(AuditKind.KEY)
    assert (deleted.action, made.action) == ("key.delete", "key.create")
    assert made.subject_name == "First"
    assert made.subject_deleted
    (person,) = await of(AuditKind.USER)
    assert person.subject_name == "ada"
    assert not person.subject_deleted
    change, _ = await of(AuditKind.PROVIDER)
    assert dict(change.details) == {
        "what": "headers, max_concurrent, models",
        "max_concurrent": "4 -> 8",
        "models.m.cost.prompt": "default -> 0.2",
    }
    assert await of(AuditKind.ALIAS) == []
