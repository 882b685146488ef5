"""Payments for credits at providers of others."""
