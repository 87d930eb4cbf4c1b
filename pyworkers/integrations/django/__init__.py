"""Django: the Worker of a project, whose configuration is the setting ``PYWORKERS``.

Imported by every process of the project: ``from pyworkers.integrations.django import worker``, and
``@worker.job`` in the ``tasks.py`` of an app. It reads no setting and opens no connection at its import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyworkers.integrations.django.application import DjangoWorker

if TYPE_CHECKING:
    from pyworkers.integrations.django.taskbackend import TaskBackend
    from pyworkers.integrations.django.taskoptions import job_options

__all__ = ["TaskBackend", "job_options", "worker"]

# Imported at their first use: most projects have no tasks of Django's own framework.
_HOMES = {"TaskBackend": "taskbackend", "job_options": "taskoptions"}

worker = DjangoWorker()
"""The Worker of this project."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
