"""Requests, events and declarations that all stages share. No input or output."""
