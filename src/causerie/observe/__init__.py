"""Observability of a service: log lines, metrics, traces, alerts and e-mails."""
