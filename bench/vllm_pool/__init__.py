"""Two real vLLM servers under the pool of the service, measured."""
