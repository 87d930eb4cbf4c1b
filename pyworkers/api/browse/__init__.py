"""Queues and job sets page by page: filters, searches, one job by its id, actions on jobs of a page.

Used by the dashboard and by programs; never by the server. Nothing here reads a whole place at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyworkers.lazy import getter

if TYPE_CHECKING:
    from pyworkers.api.actions import Acted
    from pyworkers.api.browse.actions import Action, JobAction
    from pyworkers.api.browse.filter import Filter
    from pyworkers.api.browse.jobs import Jobs
    from pyworkers.api.browse.lookup import JobView
    from pyworkers.api.browse.pages import JobPage, Row
    from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place

__all__ = [
    "DEAD",
    "RETRIES",
    "SCHEDULED",
    "Acted",
    "Action",
    "Filter",
    "JobAction",
    "JobPage",
    "JobView",
    "Jobs",
    "Place",
    "Row",
]

if not TYPE_CHECKING:  # A command that moves jobs needs no search.
    __getattr__ = getter(
        __name__,
        {
            "pyworkers.api.actions": ("Acted",),
            "pyworkers.api.browse.actions": ("Action", "JobAction"),
            "pyworkers.api.browse.filter": ("Filter",),
            "pyworkers.api.browse.jobs": ("Jobs",),
            "pyworkers.api.browse.lookup": ("JobView",),
            "pyworkers.api.browse.pages": ("JobPage", "Row"),
            "pyworkers.api.browse.places": ("DEAD", "RETRIES", "SCHEDULED", "Place"),
        },
    )
