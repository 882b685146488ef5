"""The machine that a benchmark runs on: who else uses it, seen and unseen."""
