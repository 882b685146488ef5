"""HTTP in and out: which door, which handler, and every failure in one shape."""
