"""The jobs of the orders: ``manage.py pyworkers run`` imports this module."""

from orders.models import Order
from pyworkers.integrations.django import worker


@worker.job
def confirm(order_id: int) -> None:
    """Confirm an order. The row is there: the job is enqueued after the commit."""
    order = Order.objects.get(pk=order_id)
    order.status = "confirmed"
    order.save()
