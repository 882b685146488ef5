"""Counts that replicas of the service share, and what they tell each other, by a Valkey server.

A Redis server does as well. Implements what ``access`` declares; knows no settings, no
requests.
"""
