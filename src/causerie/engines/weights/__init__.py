"""Weights: references, the cache of downloads, and what a model file says about itself.

The parts are imported by name, so that reading a file's header costs no HTTP client.
"""
