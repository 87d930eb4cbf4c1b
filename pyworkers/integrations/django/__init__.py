"""Django: the Worker of a project, whose configuration is the setting ``PYWORKERS``.

Imported by every process of the project: ``from pyworkers.integrations.django import worker``, and
``@worker.job`` in the ``tasks.py`` of an app. It reads no setting and opens no connection at its import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyworkers.integrations.django.application import DjangoWorker
from pyworkers.lazy import getter

if TYPE_CHECKING:
    from pyworkers.integrations.django.taskbackend import TaskBackend
    from pyworkers.integrations.django.taskoptions import job_options

__all__ = ["TaskBackend", "job_options", "worker"]

worker = DjangoWorker()
"""The Worker of this project."""

if not TYPE_CHECKING:  # With it, a type checker would take any name.
    # Most projects have no tasks of Django's own framework.
    __getattr__ = getter(
        __name__,
        {
            "pyworkers.integrations.django.taskbackend": ("TaskBackend",),
            "pyworkers.integrations.django.taskoptions": ("job_options",),
        },
    )
