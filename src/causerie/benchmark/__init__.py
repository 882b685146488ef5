"""Benchmark of a provider's speed: a number of concurrent replies for a period of time."""
