"""Tasks of operators: providers and their capabilities, and explanations of routing.

Knows the parts of a service and nothing of their configuration; it is served by pages and by
the management API.
"""
