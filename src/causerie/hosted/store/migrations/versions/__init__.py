"""One file a step; a step is never changed once it is released."""
