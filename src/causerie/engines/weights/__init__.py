"""Weights: references, the cache of downloads, and what a model file says about itself."""
