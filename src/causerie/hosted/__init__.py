"""Everything that exists with accounts alone, and is imported only then."""
