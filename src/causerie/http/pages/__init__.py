"""Pages of any service, with accounts or without: the chat page, and the documentation."""
