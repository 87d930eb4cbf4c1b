"""The Django app ``pyworkers``: registers its system checks.

Used in every process of the project. It imports no ``tasks.py``.
"""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register

from pyworkers.integrations.django.checks import check_settings


class PyworkersConfig(AppConfig):
    """``"pyworkers.integrations.django"`` in INSTALLED_APPS."""

    name = "pyworkers.integrations.django"
    label = "pyworkers"
    verbose_name = "pyworkers"

    def ready(self) -> None:
        """Register the checks."""
        register(check_settings, "pyworkers")
