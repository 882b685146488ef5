"""Which target answers, and what happens when one cannot."""
