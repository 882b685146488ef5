"""The management API below ``/api``: what the pages for people do, for programs.

Knows accounts and the edge; no SQL, no settings, no models. A caller bears a management key, or
a key of an operator; who may do what is asked of accounts.
"""
