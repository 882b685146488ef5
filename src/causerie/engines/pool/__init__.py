"""Several servers or processes of one model as one engine."""
