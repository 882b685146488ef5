"""Log lines: how they look, where they go, and those that come by the thousand."""
