"""Durable data: tables, migrations and queries. The only room that knows SQL.

It implements the interfaces that ``accounts`` and ``metering`` declare, and decides nothing:
neither permissions nor prices.
"""
