"""Pages for people with accounts: server-rendered, with small scripts that make them nicer and
none they need.

Knows accounts and the HTTP server; no settings, no SQL, no model. Its other needs are declared
in ``service_view``.
"""
