"""Every version that the tables have had, and the way from each to the next and back."""
