"""Spans of requests, and of everybody who was asked for them, for whoever collects traces."""
