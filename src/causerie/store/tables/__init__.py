"""The tables, as the queries know them. The migrations make them; a test compares the two.

No row points by foreign key at what may be forgotten while the row has to
stay: usage and the audit log outlive keys, people and projects.
"""

from causerie.store.tables.access import (
    api_keys,
    budgets,
    change_counter,
    changes,
    credits,
    key_secrets,
    limits,
)
from causerie.store.tables.alerts import alert_deliveries, alerts
from causerie.store.tables.base import METADATA
from causerie.store.tables.configuration import configuration_entries
from causerie.store.tables.contents import recordings
from causerie.store.tables.people import (
    attempts,
    audit,
    departures,
    identities,
    memberships,
    one_time_links,
    projects,
    recovery_codes,
    sessions,
    totp,
    users,
)
from causerie.store.tables.probes import probe_results
from causerie.store.tables.usage import (
    usage_apps,
    usage_daily,
    usage_first_token,
    usage_hourly,
    usage_records,
    usage_tags,
    usage_targets,
)

__all__ = [
    "METADATA",
    "alert_deliveries",
    "alerts",
    "api_keys",
    "attempts",
    "audit",
    "budgets",
    "change_counter",
    "changes",
    "configuration_entries",
    "credits",
    "departures",
    "identities",
    "key_secrets",
    "limits",
    "memberships",
    "one_time_links",
    "probe_results",
    "projects",
    "recordings",
    "recovery_codes",
    "sessions",
    "totp",
    "usage_apps",
    "usage_daily",
    "usage_first_token",
    "usage_hourly",
    "usage_records",
    "usage_tags",
    "usage_targets",
    "users",
]
