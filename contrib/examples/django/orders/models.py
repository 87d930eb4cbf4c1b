"""The orders."""

from django.db import models


class Order(models.Model):
    """An order."""

    customer = models.CharField(max_length=100)
    status = models.CharField(max_length=20, default="new")
