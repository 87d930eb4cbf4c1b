"""The commands of the dashboard, which need the extra ``web``, but not for their help."""

from __future__ import annotations

from pyworkers.errors import MissingExtraError


def need_extra() -> None:
    """Raise MissingExtraError if a package of the extra is missing."""
    try:
        import pyworkers.web  # noqa: F401
    except ModuleNotFoundError as error:
        # Its text names the extra, and how to install it.
        raise MissingExtraError(str(error)) from error
