"""The audit log as a page, and its entries in words: who did what to what, and what changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from causerie.hosted.accounts.people import SYSTEM
from causerie.hosted.accounts.records import CONFIGURATION, AuditEntry, AuditFilter, AuditKind, both
from causerie.hosted.accounts.usage import By
from causerie.hosted.console.request_context import RequestContext
from causerie.hosted.console.usage import names_of
from causerie.hosted.console.words import WORDS
from causerie.http.pages.templating import seconds
from causerie.protocol.money import exact
from causerie.protocol.numbers import money, whole_number

OF_PROJECTS = (AuditKind.KEY, AuditKind.MEMBER, AuditKind.PROJECT, AuditKind.CREDITS)
"""Kinds that the log of a project has."""
SENTENCES: Mapping[str, str] = WORDS["audit"]["sentences"]
_OF_THEMSELVES: Mapping[str, str] = WORDS["audit"]["of_themselves"]
_ENTRIES: Mapping[str, tuple[str, str]] = WORDS["audit"]["entries"]
_LABELS: Mapping[str, str] = WORDS["audit"]["labels"]
_PLAIN: Mapping[str, str] = WORDS["audit"]["plain"]
_IN_SENTENCE = frozenset({"email", "operator"})
_PLACES = re.compile(r"(\{object\}|\{project\})")


class AuditPart(Struct, frozen=True):
    """A part of an entry's sentence; ``path`` is the page of what it names, if that exists."""

    words: str
    path: str = ""
    named: bool = True


class AuditChange(Struct, frozen=True):
    """A detail of an entry. ``before`` is ``None`` if it is not a changed value."""

    label: str
    value: str
    before: str | None = None


class AuditRow(Struct, frozen=True):
    entry: AuditEntry
    sentence: Sequence[AuditPart]
    changes: Sequence[AuditChange]


class AuditWords(Struct, frozen=True):
    """Puts audit entries into sentences; ``whole`` (the service's log): these name the project."""

    people: Mapping[str, str]
    projects: Mapping[str, str] = {}
    whole: bool = True

    def row(self, entry: AuditEntry) -> AuditRow:
        parts = list(self._build_sentence_parts(entry))
        named = "{project}" in _find_sentence_pattern(entry) or entry.action.startswith("project.")
        if self.whole and entry.project_id and not named:
            parts += [AuditPart(" in ", named=False), self._build_project_part(entry)]
        return AuditRow(entry, parts, [*self._build_audit_changes(entry)])

    def _build_sentence_parts(self, entry: AuditEntry) -> Iterator[AuditPart]:
        for piece in _PLACES.split(_find_sentence_pattern(entry)):
            if piece == "{object}":
                yield self._build_object_part(entry)
            elif piece == "{project}":
                yield self._build_project_part(entry)
            elif piece:
                yield AuditPart(piece, named=False)

    def _build_object_part(self, entry: AuditEntry) -> AuditPart:
        kind, _, name = entry.subject.partition(":")
        if entry.action.startswith((CONFIGURATION, "alerts.")) and kind in _ENTRIES:
            path = _build_path_of_known_kind(kind, name)
            return AuditPart(name, "" if entry.action.endswith(".delete") else path)
        if entry.action == "provider.test":
            return AuditPart(entry.subject)
        if entry.action.startswith("provider."):
            return AuditPart(entry.subject, _build_path_of_known_kind("provider", entry.subject))
        if entry.action.endswith(".invite"):
            email = entry.details.get("email", "anybody")
            return AuditPart("anyone with the link" if email == "anybody" else email)
        return self._build_user_project_or_key_part(entry)

    def _build_user_project_or_key_part(self, entry: AuditEntry) -> AuditPart:
        told = entry.details.get("name" if entry.subject[:3] != "usr" else "email", "")
        words = entry.subject_name or told or entry.subject
        if entry.subject_name is None or entry.subject_deleted:
            return AuditPart(words)
        if entry.action.startswith("project."):
            return AuditPart(words, f"/projects/{entry.subject}")
        if entry.action.startswith("key."):
            return AuditPart(words, f"/projects/{entry.project_id}/keys?find={entry.subject}")
        if self.whole:
            return AuditPart(words, "/operator/users?" + urlencode({"find": words}))
        return AuditPart(words, f"/projects/{entry.project_id}")

    def _build_project_part(self, entry: AuditEntry) -> AuditPart:
        if not self.whole:
            return AuditPart("the project", named=False)
        id = entry.project_id or ""
        known = id in self.projects
        return AuditPart(self.projects.get(id, id), f"/projects/{id}" if known else "")

    def _build_audit_changes(self, entry: AuditEntry) -> Iterator[AuditChange]:
        for name, value in entry.details.items():
            if name in _IN_SENTENCE or _is_empty_default_or_repeated(entry, name, value):
                continue
            before, after = both(value) or (None, value)
            shown = self._format_detail(name, before) if before is not None else None
            label = _LABELS.get(name, name.replace("_", " "))
            yield AuditChange(label, self._format_detail(name, after), shown)

    def _format_detail(self, detail_name: str, detail: str) -> str:
        if detail_name in ("bounds", "access"):
            return reduce(lambda words, each: words.replace(*each), _PLAIN.items(), detail)
        if detail_name == "amount":
            return exact(money(detail, signed=True))
        if detail_name == "grace_seconds":
            hours, rest = divmod(int(detail), 3600)
            whole = "1 hour" if hours == 1 else f"{hours} hours"
            return "not at all" if detail == "0" else seconds(int(detail)) if rest else whole
        if detail_name in ("to", "by"):
            return self.people.get(detail.removeprefix("user:"), detail)
        return {"None": "never"}.get(detail, detail) if detail_name == "expires_at" else detail


def _build_path_of_known_kind(entry_kind: str, entry_name: str) -> str:
    return _ENTRIES[entry_kind][1].replace("{name}", quote(entry_name, safe=""))


def _find_sentence_pattern(entry: AuditEntry) -> str:
    action = entry.action
    if action == "user.operator" and entry.details.get("operator") == "False":
        return "removed the operator role of {object}"
    if entry.actor == f"user:{entry.subject}" and action in _OF_THEMSELVES:
        return _OF_THEMSELVES[action]
    kind = _ENTRIES.get(entry.subject.partition(":")[0], ("entry", ""))[0]
    return SENTENCES.get(action, f"{action} {{object}}").replace("{kind}", kind)


def _is_empty_default_or_repeated(entry: AuditEntry, detail_name: str, detail: str) -> bool:
    if not detail or (detail_name == "what" and detail == "none"):
        return True
    if detail_name == "by":
        return detail == "system:cli"
    if detail_name == "purpose":
        return detail == "inference"
    shown = entry.subject_name
    return detail_name == "name" and both(detail) is None and shown in (None, detail)


_COUNT = 50
_FIELDS = ("actor", "action", "subject")  # as of `AuditFilter`


async def show(context: RequestContext) -> None:
    project, query = context.scope, context.query
    path = f"/projects/{project}/audit" if project is not None else "/operator/audit"
    kept = query.given(("kind", *_FIELDS))
    fields: dict[str, Any] = query.given(_FIELDS)
    wanted = AuditFilter(
        **fields,
        kind=AuditKind(query.one_of("kind", list(AuditKind))) if "kind" in kept else None,
        before=whole_number(query.get("before"), 10**18 - 1),
        limit=_COUNT + 1,
    )
    found = await context.accounts.projects.audit(context.actor, project, wanted)
    shown = found[:_COUNT]
    more = urlencode(kept | {"before": str(shown[-1].id)}) if len(found) > _COUNT else ""
    rest = urlencode({name: value for name, value in kept.items() if name != "action"})
    whole = project is None
    people = (await names_of(context, project, By.USER)).known
    projects = (await names_of(context, None, By.PROJECT)).known if whole else {}
    words = AuditWords(people, projects, whole=whole)
    ordered = sorted(people.items(), key=lambda each: each[1].casefold())
    actors = {SYSTEM.label: SYSTEM.name} | {f"user:{id}": name for id, name in ordered}
    await context.send_page(
        "audit.html",
        rows=[words.row(each) for each in shown],
        path=path,
        more=more,
        kept=kept,
        all_actions=f"{path}?{rest}" if rest else path,
        paged=bool(query.get("before")),
        kinds={kind: kind.title_words for kind in (AuditKind if whole else OF_PROJECTS)},
        actors=({kept["actor"]: kept["actor"]} if "actor" in kept else {}) | actors,
    )
