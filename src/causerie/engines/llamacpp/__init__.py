"""The embedded engine: llama.cpp in a child process of ours, spoken to over a Unix socket."""
