"""Causerie: an open chat-completions service."""

__version__ = "0.2.0"
