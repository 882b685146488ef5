"""How fast a provider answers: so many replies at a time for so long, and what that gave."""
