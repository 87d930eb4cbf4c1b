"""Roots: the paths of a dashboard that another application mounts, and of one Redis in it. Pure.

No path has a slash at its end.
"""

from __future__ import annotations

from starlette.types import Scope

HOME = "pyworkers.home"
"""In the scope of a request below ``/redis/NAME``: the path of the whole dashboard, which has the cookies."""


def root_of(scope: Scope) -> str:
    """The path of the pages that answer: of the dashboard, or of one Redis in it."""
    return str(scope.get("root_path", "")).rstrip("/")


def home_of(scope: Scope) -> str:
    """The path of the whole dashboard."""
    return str(scope.get(HOME, root_of(scope)))
