"""One file for each migration step; a step is never changed once it is released."""
