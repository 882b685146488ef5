"""Payments for credits through payment providers."""
