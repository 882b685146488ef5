"""``python -m causerie`` is the command ``causerie``."""

from causerie.cli import main

main()
