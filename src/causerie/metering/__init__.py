"""Usage: one record for each request, and the counters derived from them."""
