"""JSON: what the pages show and change, for programs, under ``/api``, described by OpenAPI.

Runs in the event loop of the dashboard. It shows ``as_dict()`` of the objects of ``api`` and nothing else.
"""

from pyworkers.web.json.answering import ROUTES, addresses_of, refusal

__all__ = ["ROUTES", "addresses_of", "refusal"]
