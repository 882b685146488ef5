"""Counts that replicas of the service share, in a Valkey (or Redis) server.

Implements what ``access`` declares; knows neither settings nor requests.
"""
