"""The public catalog: what is in it, how it is searched, and what its pages reckon."""
