"""Tests of the orders, which need neither Redis nor a server: ``python manage.py test``."""

from django.test import TestCase

from orders.models import Order
from orders.tasks import confirm
from pyworkers.testing import fake


class OrderTests(TestCase):
    """Orders by the web."""

    def test_an_order_is_confirmed(self) -> None:
        with fake() as queue:
            created = self.client.post("/orders", {"customer": "ann"}).json()
            queue.assert_enqueued(confirm, created["order"])
            queue.drain()
        assert Order.objects.get().status == "confirmed"

    def test_a_refused_order_enqueues_nothing(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            assert self.client.post("/orders").status_code == 400
        assert callbacks == []
