"""Notations of reasoning and tool calls, one small declaration per model family."""
