"""Options and help of each command; the modules that carry it out are imported when it runs."""
