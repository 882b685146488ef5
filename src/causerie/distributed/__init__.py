"""What replicas of the service count together, in a Valkey (or Redis) server.

Implements what ``access`` declares; knows neither settings nor requests.
"""
