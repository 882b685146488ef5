"""Alerts: which conditions hold, who has been notified of them, and how messages get there.

Knows nothing of budgets, providers or models: it gets conditions in words, and hands on messages.
"""
