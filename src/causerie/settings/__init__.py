"""The operator's settings: one frozen tree, read from one file, flags and the environment.

The only room that reads configuration files and environment variables. It knows the shape and
the limits of the values; the composition root hands them to an engine, a door or a log, which
know their meaning.
"""
