"""The books that ``accounts`` asks for, as queries: one object a noun, one connection for all."""
