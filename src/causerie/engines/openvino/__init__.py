"""OpenVINO GenAI as an engine: a child process, its client, and the text engine of both."""
