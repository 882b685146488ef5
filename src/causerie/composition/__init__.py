"""Composition: builds a service from its settings, starts it, reloads it and stops it.

To be read in this order:

- ``app``: the root. It enters everything in the order of the start and leaves it in reverse.
- ``startup``: takes the address, loads models, announces readiness, serves until a stop.
- ``service``: the parts of a service, and their replacement in one step at a reload.
- ``providers``, ``targets``, ``catalog``: the parts that answer; what has not changed is kept.
- ``reloading``, with ``entries`` and ``control``: new settings while it runs.
- ``account_backend``, ``account_frontend``: accounts, console and management, where they are used.
"""
