"""Ids and aliases to models, and what is told of them."""
