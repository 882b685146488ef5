"""Pages for people: server-rendered, with small scripts that make them nicer and none they need.

Knows accounts and the edge; no settings, no SQL, no model. Its other needs are declared in
``ports``.
"""
