"""API shapes, a folder each: nothing behind a shape knows which one a client asked in."""
