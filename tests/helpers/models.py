"""Models: what the model-based tests of the store share: two servers over a real Redis.

Used by the tests alone, in the process of the test.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store.transport.connections import connect_async
from tests.helpers.owner import Owner

OWNERS = ["host:1:aaa", "host:2:bbb"]
owners = st.sampled_from(OWNERS)


class TwoServers(RuleBasedStateMachine):
    """Base of the models: two incarnations, either of which may die at any time."""

    url = ""

    def begin(self, queues: list[str]) -> None:
        """Register both, under their own namespace. Call this first."""
        self.keys = Keys(f"m{uuid.uuid4().hex[:12]}:")
        self.config = RedisConfig(url=self.url, namespace=self.keys.namespace)
        self.runner = asyncio.Runner()
        self.redis = connect_async(self.config)
        self.stores = {name: Owner(self.redis, self.keys, name) for name in OWNERS}
        for owner in OWNERS:
            self.do(self.stores[owner].renew(30, queues))

    def do(self, coroutine: Any) -> Any:
        """The result of a coroutine."""
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        """Delete the keys, and close the connection."""

        async def clean() -> None:
            names = [key async for key in self.redis.scan_iter(f"{self.keys.namespace}*")]
            if names:
                await self.redis.unlink(*names)
            await self.redis.aclose()

        if hasattr(self, "runner"):
            self.do(clean())
            self.runner.close()


def check(model: type[TwoServers], url: str, *, examples: int, steps: int) -> None:
    """Run a model. Raises AssertionError with the shortest sequence of steps that breaks it."""
    there: type[TwoServers] = type("Model", (model,), {"url": url})
    case = there.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()
