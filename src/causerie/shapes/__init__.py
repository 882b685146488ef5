"""API shapes, a folder each: a reader (bytes to a request) and an encoder (events to bytes).

Nothing behind a shape knows which one a client asked in.
"""
