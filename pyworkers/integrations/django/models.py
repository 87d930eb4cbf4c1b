"""Queue: a model without a table, so that Django's permissions cover the page in the admin."""

from __future__ import annotations

from django.db import models


class Queue(models.Model):
    """A queue; its numbers are in Redis. The class is named as the permissions: ``pyworkers.view_queue``."""

    name = models.CharField(primary_key=True, max_length=255)

    class Meta:
        """To view the page in the admin, and to operate in the dashboard (``pyworkers.operate_queue``)."""

        managed = False
        default_permissions = ("view", "operate")
