"""A key as a form, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType

from causerie.accounts.issuing import KeyDraft, KeyEdit
from causerie.accounts.keys import ApiKey, Purpose
from causerie.console.bounds_form import NO_ROWS, BoundsRows
from causerie.console.fields import FormFields
from causerie.errors import InvalidRequest

ENDS = (
    ("never", "Never"),
    ("1", "1 day"),
    ("7", "7 days"),
    ("30", "30 days"),
    ("date", "On a date"),
)
_DAYS: Mapping[str, int] = MappingProxyType({"1": 1, "7": 7, "30": 30})


@dataclass(frozen=True, slots=True)
class KeyForm:
    """Contents of the form. ``doors`` and ``models`` of ``None`` are all of the project's."""

    name: str = ""
    purpose: str = Purpose.INFERENCE
    end: str = "never"
    date: str = ""
    doors: frozenset[str] | None = None
    models: frozenset[str] | None = None
    rows: BoundsRows = NO_ROWS

    @staticmethod
    def of(key: ApiKey) -> KeyForm:
        end = key.expires_at
        return KeyForm(
            name=key.name,
            purpose=key.purpose,
            end="date" if end is not None else "never",
            date=f"{end.astimezone(UTC):%Y-%m-%d}" if end is not None else "",
            doors=key.doors,
            models=key.models,
            rows=BoundsRows.of(key.bounds),
        )

    @staticmethod
    def typed(form: FormFields) -> KeyForm:
        return KeyForm(
            name=form.get("name"),
            purpose=form.get("purpose") or Purpose.INFERENCE,
            end=form.get("end") or "never",
            date=form.get("date"),
            doors=_chosen(form, "doors"),
            models=_chosen(form, "models"),
            rows=BoundsRows.typed(form),
        )

    def draft(self, now: datetime) -> KeyDraft:
        """A key to be made; raises :class:`InvalidRequest`."""
        try:
            purpose = Purpose(self.purpose)
        except ValueError as failure:
            raise InvalidRequest("A key is for inference or management.", param="purpose") from (
                failure
            )
        return KeyDraft(
            name=self.name,
            purpose=purpose,
            expires_at=self._end(now),
            doors=self.doors,
            models=self.models,
            bounds=self.rows.bounds(),
        )

    def edit(self, key: ApiKey, now: datetime) -> KeyEdit:
        """Return the changes to a key; an untouched end stays as it is, to the second."""
        before = KeyForm.of(key)
        same = (self.end, self.date) == (before.end, before.date)
        return KeyEdit(
            name=self.name,
            expires_at=key.expires_at if same else self._end(now),
            doors=self.doors,
            models=self.models,
            bounds=self.rows.bounds(),
        )

    def _end(self, now: datetime) -> datetime | None:
        if self.end in _DAYS:
            return now + timedelta(days=_DAYS[self.end])
        if self.end != "date":
            return None
        try:
            day = datetime.strptime(self.date, "%Y-%m-%d").date()
        except ValueError as failure:
            raise InvalidRequest(
                "Choose the day on which the key expires.", param="date"
            ) from failure
        return datetime.combine(day, time(23, 59, 59), UTC)


def _chosen(form: FormFields, name: str) -> frozenset[str] | None:
    if form.get(f"{name}_all") != "some":
        return None
    return frozenset(form.every(name))
