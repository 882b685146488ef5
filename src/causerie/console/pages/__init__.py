"""What each page asks of accounts, and what it shows."""
