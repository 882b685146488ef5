"""What a chat completion means on a text engine: template, thinking, tools, constraint, parser."""
