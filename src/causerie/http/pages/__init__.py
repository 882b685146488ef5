"""Pages of any service, with accounts or without: the chat page, the documentation, and what all pages share."""
