"""A Redis with the rights that managed services give: without ``@admin`` and ``@dangerous``, and fewer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.cli import main
from pyworkers.web import app
from tests.helpers.redises import OwnRedis, command
from tests.helpers.server_process import serving
from tests.integrations.web import patient, served
from tests.web.test_crawl import crawled
from tests.web.visitor import Visitor

RIGHTS = {
    "few": "-@dangerous -@admin",
    "fewer": "-@dangerous -@admin -client|tracking -client|id -client|setname -script -monitor -wait",
}
APP = """
limits = [worker.limit("slots", concurrency=2)]

@worker.job(queue="mail", limits=limits)
def send(number):
    note("sent", number)

@worker.job(queue="mail", track=60)
def fail():
    raise ValueError("no")

@worker.cron("0 0 1 1 *")
@worker.job(queue="mail")
def yearly():
    pass
"""
COMMANDS = [
    "adopt go-workers --process p --dry-run",
    "audit",
    "batches list",
    "cancel unknown",
    "check",
    "cron list",
    "cron trigger yearly",
    "dead list",
    "deploys list",
    "deploys mark v1",
    "errors",
    "finished list",
    "jobs mail list",
    "limits list",
    "limits reset slots",
    "locks list",
    "logs unknown",
    "metrics",
    "pause mail",
    "processes",
    "queues",
    "quiet --all --yes",
    "reload --all --yes",
    "result unknown",
    "resume mail",
    "retries list",
    "retries kill --all --yes",
    "scheduled list",
    "scheduled clear --yes",
    "stats",
    "status unknown",
    "thresholds set waiting>5",
    "stop --all --yes",
    "undo unknown",
    "workers",
]
"""Each group at least once; those that act on what is there come late."""


@pytest.fixture(params=RIGHTS)
def managed_url(request: pytest.FixtureRequest, tmp_path: Path, one_binary: str) -> Iterator[str]:
    with OwnRedis(one_binary, tmp_path / "redis", "--save", "") as server:
        server.start()
        words = RIGHTS[request.param].split()
        command(server, "ACL", "SETUSER", "managed", "on", ">secret", "~*", "&*", "+@all", *words)
        yield server.url.replace("//", "//managed:secret@")


def test_a_server_and_each_command_work(tmp_path: Path, managed_url: str) -> None:
    with serving(tmp_path, managed_url, "", APP) as server, Client(managed_url) as client:
        client.enqueue("mail", "send", [1])
        client.enqueue("mail", "send", [2], delay=3600)
        client.enqueue("mail", "fail", track=60)
        server.wait_for_notes(1, "sent")
        server.wait_for_event("job.failed")
        server.wait_for_event("redis.lacks", finding="info")
        with patient(), served(app(managed_url, token="")) as root:
            pages = crawled(Visitor(f"{root}/"), most=2, most_jobs=2).visited
            assert len(pages) > 50
            assert [page for page in pages if "NOPERM" in Visitor(f"{root}/").ask(page).text] == []
        for words in COMMANDS:
            found = CliRunner().invoke(main, [*words.split(), "--url", managed_url])
            assert found.exception is None or isinstance(found.exception, SystemExit), (
                words,
                found.exception,
            )
            assert found.exit_code in (0, 1), (words, found.output)
            assert "NOPERM" not in found.output, (words, found.output)
        assert server.wait() == 0
        events = [event for event in server.events() if event["level"] in ("warning", "error")]
        assert len(server.events("redis.lacks")) == 1
        assert {event["event"] for event in events} <= {"redis.lacks", "tracking.refused", "job.failed"}


def test_the_check_says_what_is_not_known(managed_url: str) -> None:
    found = CliRunner().invoke(main, ["check", "--json", "--url", managed_url])
    assert found.exit_code == 0
    [finding] = json.loads(found.stdout)["findings"]
    assert (finding["code"], finding["advice"]) == ("info", True)
    assert finding["message"].startswith("this Redis does not show INFO to this user")
