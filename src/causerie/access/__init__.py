"""Authentication of callers and admission of their requests."""
