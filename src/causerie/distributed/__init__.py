"""Limits and budgets that replicas share in a Valkey or Redis server, as ``access`` declares."""
