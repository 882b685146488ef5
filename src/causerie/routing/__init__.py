"""Routing: the choice of a target, and failover."""
