"""The Responses API, as the specification Open Responses describes it."""
