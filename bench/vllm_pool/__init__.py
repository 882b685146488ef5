"""Real vLLM servers under the pool of the service, measured."""
