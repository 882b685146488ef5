"""vLLM as a text engine of ours, in a process of its own."""
