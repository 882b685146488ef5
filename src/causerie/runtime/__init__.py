"""Owns what all work of a process shares: its event loop's sockets and its thread for long work.

Knows nothing of requests, and imports no other room.
"""
