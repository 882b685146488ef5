"""What each command takes and says of itself; what carries it out is imported when it runs."""
