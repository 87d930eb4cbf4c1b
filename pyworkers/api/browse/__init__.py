"""Queues and job sets page by page: filters, searches, one job by its id, actions on jobs of a page.

Used by the dashboard and by programs; never by the server. Nothing here reads a whole place at once.
"""

from pyworkers.api.browse.actions import Acted, Action
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
    "JobPage",
    "JobView",
    "Jobs",
    "Place",
    "Row",
]
