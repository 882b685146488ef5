"""Routes with path parameters and exported files, for the console and the management API.

Knows the edge; knows neither pages nor JSON, and no accounts.
"""
