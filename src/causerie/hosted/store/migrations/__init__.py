"""Migrations of the tables: the steps from each released version to the next."""
