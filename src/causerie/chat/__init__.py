"""Chat completions on a text engine: template, thinking, tools, constraint, parser."""
