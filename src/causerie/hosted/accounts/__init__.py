"""People, projects, keys and budgets: who exists, and who may do what.

Knows no SQL, no HTTP and no model: what it needs of a store it declares.
"""
