"""How model families write reasoning and tool calls: one small declaration each."""
