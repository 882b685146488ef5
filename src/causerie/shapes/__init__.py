"""The APIs that clients speak, a folder each; all are read into the same kind of request."""
