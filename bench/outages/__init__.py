"""A provider that counts, clients that note what they get, and the verdict over both and a ledger.

A request's name goes everywhere: it is the client's request id, the text of its message, and so
what the provider counts by and what the ledger's row has. It begins with the fault and the kind of
its client: ``kill-many-17``.
"""
