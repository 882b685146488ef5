"""A market of endpoints that do what a script says, and what could have been had there."""
