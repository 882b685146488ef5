"""Signing in with another provider by OpenID Connect: who somebody is, as that provider says.

Speaks to providers; knows neither accounts nor settings nor the browser's pages.
"""
