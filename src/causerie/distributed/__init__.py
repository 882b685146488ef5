"""Limits and budgets that replicas of the service share in a Valkey or Redis server."""
