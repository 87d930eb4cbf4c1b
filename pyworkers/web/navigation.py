"""Navigation: the pages in the head of each page, in their groups. Pure."""

from __future__ import annotations

from typing import NamedTuple


class PageGroup(NamedTuple):
    """A group of pages in the navigation, which leads to the first of them."""

    label: str
    pages: tuple[tuple[str, str], ...]
    """Of each page, the first segment of its address, and its title."""
    others: tuple[str, ...] = ()
    """The first segments of further pages that belong to it."""


GROUPS = (
    PageGroup("Overview", (("", "Overview"), ("problems", "Problems"), ("metrics", "Metrics"))),
    PageGroup(
        "Jobs",
        (
            ("queues", "Queues"),
            ("running", "Running"),
            ("scheduled", "Scheduled"),
            ("retries", "Retries"),
            ("dead", "Dead"),
            ("errors", "Errors"),
            ("finished", "Finished"),
            ("enqueue", "Enqueue"),
        ),
        ("jobs", "tags", "tasks"),
    ),
    PageGroup("Flow", (("batches", "Batches"), ("cron", "Cron"), ("limits", "Limits"), ("locks", "Locks"))),
    PageGroup(
        "System",
        (("servers", "Servers"), ("alarms", "Alarms"), ("thresholds", "Thresholds"), ("audit", "Audit")),
    ),
)
NAVIGATION = tuple(page for group in GROUPS for page in group.pages)
"""The pages in the navigation."""
OF_FIRST = ("alarms", "thresholds")
"""Those whose data are in the first Redis, for all; also at the addresses of another one."""
# The jobs of a form go to one Redis.
_OF_ONE = ("enqueue",)
_JOINED = {path for path, _ in NAVIGATION}.difference(_OF_ONE)
# The first segments of the pages of one thing that show all Redis servers, too.
_NAMED = ("metrics", "tags")


def group_of(page: str) -> PageGroup | None:
    """The group in the navigation of a page, by the first segment of its address; None for another page."""
    return next((one for one in GROUPS if page in one.others or page in dict(one.pages)), None)


def is_joined(path: str) -> bool:
    """True if the page with this path shows all Redis servers; each of them has it, too."""
    page, _, name = path.partition("/")
    return path in _JOINED or (name != "" and page in _NAMED)
