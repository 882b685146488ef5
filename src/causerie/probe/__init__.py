"""Probe of a provider's behaviour by small fixed questions, each judged by its effect.

A question is a pure script: it yields requests, receives their replies, and ends
in a verdict. The interview sends the requests and enforces the limits. Nothing
here reads settings, writes files or corrects errors: replies are judged as
received, not as a tolerant client would read them.
"""
