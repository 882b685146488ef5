"""Pages: each calls accounts and renders the result."""
