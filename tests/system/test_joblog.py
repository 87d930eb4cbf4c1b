"""The log of a job, through the real server, in each mode; by client, command and JSON."""

from __future__ import annotations

import asyncio
import json
import threading

from click.testing import CliRunner

from pyworkers.asyncclient import AsyncClient
from pyworkers.cli import main
from pyworkers.client import Client
from pyworkers.protocol.flow.joblog import LogLine
from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for

CODE = """
@worker.job(queue="MODE", mode="MODE", concurrency=2, retry=1, retry_in=lambda count, error, message: 0.2)
def MODE_work(what):
    import logging
    import structlog
    message = current_message()
    message.log(f"{what} {message.attempt}", n=7)
    structlog.get_logger().warning("heard", who="structlog")
    logging.getLogger("app").info("heard %d", 2)
    if what == "many":
        for number in range(3000):
            message.log(f"line {number}", text="x" * 50)
    if what == "long":
        message.log("x" * 1_000_000)
    if what == "meet":
        meet("log MODE")
    if what == "die" and not message.crash_count:
        os.kill(os.getpid(), 9)
    if what == "fail":
        raise ValueError(f"broken {message.attempt}")
"""
MODES = ("process", "thread", "async")


def code_of(mode: str) -> str:
    """The job of a mode, in a queue of its name."""
    code = CODE.replace("MODE", mode)
    return code.replace("def ", "async def ", 1) if mode == "async" else code


def words(lines: list[LogLine]) -> list[str]:
    return [f"{line.state}: {line.text}" if line.state else line.text for line in lines]


def test_a_job_has_its_log(serve_either: Serve, redis_url: str, namespace: str) -> None:
    with (
        serve_either("".join(map(code_of, MODES))) as server,
        Client(redis_url, namespace=namespace) as client,
    ):

        def ended(jid: str, state: str, ends: int = 1) -> list[LogLine]:
            def there() -> list[LogLine] | None:
                lines = client.logs(jid)
                states = [line.state for line in lines if line.state]
                return lines if len(states) == ends and states[-1] == state else None

            return wait_for(there, message=f"the log ends with {state}")

        for mode in MODES:
            jid = client.enqueue(mode, f"{mode}_work", ["once"], track=60)
            lines = ended(jid, "done")
            assert words(lines) == ["once 0", "heard", "heard 2", "done: "], mode
            first, second, third, last = lines
            assert (first.level, first.fields) == ("info", {"n": 7})
            assert (second.level, second.fields) == ("warning", {"who": "structlog"})
            assert (third.level, third.fields) == ("info", {"logger": "app"})
            assert last.at is not None
            assert 50 < server.redis.ttl(server.keys.log(jid)) <= 60
            assert asyncio.run(read(redis_url, namespace, jid)) == lines

            failed = client.enqueue(mode, f"{mode}_work", ["fail"], track=60)
            assert words(ended(failed, "dead", ends=2)) == [
                "fail 0", "heard", "heard 2", "retrying: ValueError: broken 0",
                "fail 1", "heard", "heard 2", "dead: ValueError: broken 1",
            ]  # fmt: skip

            # Without track, it has its own lines alone, for a day.
            plain = client.enqueue(mode, f"{mode}_work", ["plain"])
            assert words(ended(plain, "done")) == ["plain 0", "done: "]
            assert server.redis.ttl(server.keys.log(plain)) > 86_000

            many = client.enqueue(mode, f"{mode}_work", ["many"], track=60)
            texts = words(ended(many, "done"))
            assert texts[-2] == "line 2999"
            numbers = [int(text.split()[1]) for text in texts[:-1]]
            assert numbers == list(range(3000 - len(numbers), 3000))
            assert 250 < len(numbers) < 600
            assert (server.redis.memory_usage(server.keys.log(many)) or 0) < 100_000

            long = words(ended(client.enqueue(mode, f"{mode}_work", ["long"], track=60), "done"))
            assert long[:3] == ["long 0", "heard", "heard 2"]
            assert "[… 998000 characters …]" in long[3]

        # Its worker was lost: the server writes the end of that run.
        lost = client.enqueue("process", "process_work", ["die"], track=60)
        texts = words(ended(lost, "done", ends=2))
        assert texts[:3] == ["die 0", "heard", "heard 2"]
        assert texts[3].startswith("retrying: WorkerLost")

        running = client.enqueue("process", "process_work", ["meet"], track=60)
        server.wait_for_notes(1, "log process")
        wait_for(lambda: len(client.logs(running)) == 3, message="the lines of a running job")
        arguments = ["logs", running, "--follow", "--url", redis_url, "--namespace", namespace]
        threading.Timer(0.5, server.let_go, ["log process"]).start()
        shown = CliRunner().invoke(main, arguments, catch_exceptions=False).output.splitlines()
        assert [line.split("  ", 1)[1].split() for line in shown] == [
            ["info", "meet", "0", "n=7"],
            ["warning", "heard", 'who="structlog"'],
            ["info", "heard", "2", 'logger="app"'],
            ["done"],
        ]
        as_json = CliRunner().invoke(main, ["logs", running, "--json", *arguments[3:]]).output
        assert [line["state"] for line in json.loads(as_json)["lines"]] == ["", "", "", "done"]
        unknown = CliRunner().invoke(main, ["logs", "other", *arguments[3:]])
        assert (unknown.exit_code, "no log of the job other" in unknown.output) == (1, True)


async def read(redis_url: str, namespace: str, jid: str) -> list[LogLine]:
    client = AsyncClient(redis_url, namespace=namespace)
    try:
        return await client.logs(jid)
    finally:
        await client.close()
