"""Several processes that answer requests at one port: what they count together, and how they talk.

The parent accepts connections and passes each to a worker process; a worker passes back those
whose request only the parent can answer. Limits, breakers and places at providers are counted in
memory that all of them share. Knows nothing of settings, nor of what answers a request.
"""
