"""Web pages of the service: rendered on the server, with small scripts that no page needs.

Knows accounts and the HTTP server; no settings, no SQL, no model. Its other needs are declared
in ``service_view``.
"""
