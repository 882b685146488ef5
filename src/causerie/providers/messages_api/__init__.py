"""Anthropic's Messages API: our requests and its replies, in the terms of the other."""
