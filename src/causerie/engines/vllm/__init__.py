"""vLLM as an engine: its own process, asked over HTTP."""
