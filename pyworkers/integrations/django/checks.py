"""System checks: ``manage.py check`` reports what is wrong with ``PYWORKERS``.

Used in every command of ``manage.py``. They connect to nothing and import no job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from pyworkers import PyworkersError
from pyworkers.config.loading import load
from pyworkers.integrations.django.configuration import django_settings, read_settings

_URL = "PYWORKERS_REDIS__URL"
_TASK_BACKEND = "pyworkers.integrations.django.TaskBackend"


def check_settings(app_configs: Any = None, **_options: Any) -> list[CheckMessage]:
    """The findings of all checks."""
    return list(_findings())


def _findings() -> Iterator[CheckMessage]:
    try:
        document = read_settings()
        load(read_settings, env=os.environ)
        database = django_settings().database
    except PyworkersError as error:
        yield Error(f"{error.location}: {error.message}", hint=error.hint or None, id="pyworkers.E002")
        return
    redis = document.data.get("redis", {})
    if not (redis.get("url") or os.environ.get("REDIS_URL") or os.environ.get(_URL)):
        yield Error(
            "PYWORKERS names no Redis, and REDIS_URL is not set.",
            hint='PYWORKERS = {"redis": {"url": "redis://127.0.0.1:6379/0"}}',
            id="pyworkers.E001",
        )
    if database not in connections:
        yield Error(
            f"PYWORKERS: database is {database!r}, which is not in DATABASES.",
            hint=f"known here: {', '.join(connections)}",
            id="pyworkers.E003",
        )
    yield from _of_tasks()


def _of_tasks() -> Iterator[CheckMessage]:
    """The settings of ``TaskBackend``: Django 6.0 itself does not check the backends."""
    backends = getattr(settings, "TASKS", None) or {}
    ours = [alias for alias, params in backends.items() if params.get("BACKEND") == _TASK_BACKEND]
    if not ours:
        return
    # Imported here: a project without tasks does not need the framework.
    from pyworkers.integrations.django.taskframework import task_backends
    from pyworkers.integrations.django.taskqueues import ranges

    try:
        ranges()
        for alias in ours:
            task_backends[alias]
    except ImproperlyConfigured as error:
        yield Error(str(error), id="pyworkers.E010")
