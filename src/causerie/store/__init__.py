"""What lasts: tables, migrations and queries. The only room that knows SQL.

It implements what ``accounts`` and ``metering`` declare that they need, and
decides nothing: neither who may do what, nor what a request costs.
"""
