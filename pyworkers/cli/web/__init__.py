"""The commands of the dashboard, which need the extra ``web``: serving it, and its users."""

from __future__ import annotations

from pyworkers.errors import MissingExtraError

try:
    import pyworkers.web  # noqa: F401
except ModuleNotFoundError as error:
    # Its text names the extra, and how to install it.
    raise MissingExtraError(str(error)) from error
