"""Parts of the benchmark of answers."""
