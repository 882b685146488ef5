"""Code that is needed only with accounts, and is imported only then."""
