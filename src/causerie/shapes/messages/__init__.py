"""The Messages API: read as a chat completion request, and answered in blocks of content."""
