"""The views: one makes an order, one shows it."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders.models import Order
from orders.tasks import confirm


@csrf_exempt
@require_POST
def create(request: HttpRequest) -> JsonResponse:
    """Make an order, and enqueue the job that confirms it: both, or neither."""
    customer = request.POST.get("customer", "")
    with transaction.atomic():
        order = Order.objects.create(customer=customer)
        jid = confirm.enqueue(order.pk)
        if not customer:
            transaction.set_rollback(True)
            return JsonResponse({"error": "an order needs a customer"}, status=400)
    return JsonResponse({"order": order.pk, "jid": jid}, status=201)


def show(request: HttpRequest, order_id: int) -> JsonResponse:
    """Show an order."""
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"order": order.pk, "customer": order.customer, "status": order.status})
