"""What does a provider really do? Small fixed questions, each judged by its effect.

A question is a pure script: it yields requests, gets what came back, and ends in
a verdict. Who sends them, and within which limits, is the interview's to know.
Nothing here reads settings, writes files or forgives: replies are judged as they
came, not as a tolerant client would read them.
"""
