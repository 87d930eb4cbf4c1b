"""Orders, with FastAPI and SQLAlchemy: a web application and the jobs that confirm them.

pyworkers run --config workers.toml
uvicorn orders:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.pool import NullPool

from pyworkers import Worker
from pyworkers.integrations.fastapi import lifespan
from pyworkers.integrations.sqlalchemy import enqueue_after_commit

FOLDER = Path(__file__).parent
# Without a pool: an event loop owns its connections, and each worker has its own loop.
engine = create_async_engine(
    f"sqlite+aiosqlite:///{os.environ.get('SHOP_DB', FOLDER / 'orders.sqlite3')}", poolclass=NullPool
)
worker = Worker(config=FOLDER / "workers.toml")


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """An order; ``status`` is ``new`` until its job has run."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    status: Mapped[str] = mapped_column(default="new")


@worker.job(queue="orders")
async def confirm(order_id: int) -> None:
    """Confirm an order. The row is there: the job is enqueued after the commit."""
    async with AsyncSession(engine) as session, session.begin():
        order = await session.get_one(Order, order_id)
        order.status = "confirmed"


@asynccontextmanager
async def run(app: FastAPI) -> AsyncIterator[None]:
    """Make the tables; close the connections at the end."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with lifespan(worker)(app):
        yield
    await engine.dispose()


app = FastAPI(lifespan=run)


@app.post("/orders", status_code=201)
async def create(customer: str = "") -> dict[str, int | str]:
    """Make an order, and enqueue the job that confirms it: both, or neither."""
    async with AsyncSession(engine) as session, session.begin():
        order = Order(customer=customer)
        session.add(order)
        await session.flush()
        jid = enqueue_after_commit(session, confirm, order.id)
        if not customer:
            raise HTTPException(400, "an order needs a customer")
        return {"order": order.id, "jid": jid}


@app.get("/orders/{order_id}")
async def show(order_id: int) -> dict[str, int | str]:
    """Show an order."""
    async with AsyncSession(engine) as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, "no such order")
    return {"order": order.id, "customer": order.customer, "status": order.status}
