"""Chat providers that others run, or that this program runs elsewhere."""
