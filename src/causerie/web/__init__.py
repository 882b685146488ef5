"""What the console and the management API share: routes with path parameters, exported files.

Knows the edge; knows neither pages nor JSON, and no accounts.
"""
