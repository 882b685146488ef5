"""What operators see to: providers and what they can do, and who would get a request.

Knows the parts of a service and nothing of how it is configured; it is served by
pages and by the management API.
"""
