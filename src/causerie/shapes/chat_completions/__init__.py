"""Chat completions: ``POST /chat/completions``, read into a request and answered in chunks or whole."""
