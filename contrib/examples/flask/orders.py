"""Orders, with Flask: a web application and the jobs that confirm them.

pyworkers run --config workers.toml
flask --app orders run
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from flask import Flask, abort, current_app, request

from pyworkers.integrations.flask import PyworkersExtension

FOLDER = Path(__file__).parent

app = Flask(__name__)
app.config["DATABASE"] = os.environ.get("SHOP_DB", str(FOLDER / "orders.sqlite3"))
app.config["PYWORKERS"] = {"config": FOLDER / "workers.toml"}
jobs = PyworkersExtension(app)


def connect() -> closing[sqlite3.Connection]:
    """The database of the application, in a request as in a job."""
    database = sqlite3.connect(current_app.config["DATABASE"], isolation_level=None)
    database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, status TEXT)")
    return closing(database)


@jobs.worker.job(queue="orders")
def confirm(order_id: int) -> None:
    """Confirm an order."""
    with connect() as database:
        database.execute("UPDATE orders SET status = 'confirmed' WHERE id = ?", (order_id,))


@app.post("/orders")
def create() -> tuple[dict[str, object], int]:
    """Make an order, and then enqueue the job that confirms it."""
    customer = request.args.get("customer", "")
    if not customer:
        abort(400, "an order needs a customer")
    with connect() as database:
        row = database.execute("INSERT INTO orders (customer, status) VALUES (?, 'new')", (customer,))
    return {"order": row.lastrowid, "jid": confirm.enqueue(row.lastrowid or 0)}, 201


@app.get("/orders/<int:order_id>")
def show(order_id: int) -> dict[str, object]:
    """Show an order."""
    with connect() as database:
        row = database.execute("SELECT customer, status FROM orders WHERE id = ?", (order_id,)).fetchone()
    if row is None:
        abort(404)
    return {"order": order_id, "customer": row[0], "status": row[1]}
