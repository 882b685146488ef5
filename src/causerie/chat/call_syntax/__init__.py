"""The parts of a tool call: for each, how to read it as it streams and how to constrain it."""
