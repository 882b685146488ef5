"""The models behind the doors: names, capabilities, prices, and the public router catalog.

- ``catalog``, ``door_catalog``: ids and aliases to models, those of one door
- ``model``, ``listing``, ``endpoint``: a served model; an entry of the router, its endpoints
- ``parameters``, ``exclusion``: what a target supports, and why a request passes it by
- ``choice``, ``reasons``: which endpoint answers, in which order, and why
- ``tariff``, ``costs``: prices of tokens, and of a month of requests
- ``filters``, ``page_cache``: queries of ``GET /models``, and its answers as bytes
- ``search``, ``fields``: queries of the catalog's page

Knows nothing of settings, HTTP, HTML, or how a model is run.
"""
