"""Chat completions: read into a request, and answered whole or in chunks."""
