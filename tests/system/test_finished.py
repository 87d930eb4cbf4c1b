"""Finished jobs, through the real server: kept where ``keep`` asks for it, shown, enqueued again."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from pyworkers.api.finished import FinishedFilter, FinishedJob, FinishedSet
from pyworkers.cli import main
from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for

CODE = """
@worker.job(queue="kept", keep=(1000, 3600), retry=1, retry_in=lambda count, error, message: 0.1, track=60)
def work(what, n=1):
    note(what, n)
    if what == "fail":
        raise ValueError("it is broken")
    return [what] * n

@worker.job(queue="own")
def other(what):
    note(what)

@worker.job(queue="plain")
async def plain(what):
    note(what)
"""
SETTINGS = """
[queues.own]
keep = [10, 60]
keep_args = false
"""


def test_finished_jobs_are_kept_where_it_is_asked(
    serve_either: Serve, tmp_path: Path, redis_url: str, namespace: str
) -> None:
    (tmp_path / "workers.toml").write_text(SETTINGS)
    where = RedisConfig(redis_url, namespace)
    options = ["--url", redis_url, "--namespace", namespace]
    with (
        serve_either(CODE, "--config", str(tmp_path / "workers.toml")) as server,
        Client(redis_url, namespace=namespace) as client,
    ):
        finished = FinishedSet(where)

        def there(count: int, asked: FinishedFilter = FinishedFilter()) -> list[FinishedJob]:  # noqa: B008
            def found() -> list[FinishedJob] | None:
                jobs = list(finished.matching(asked))
                return jobs if len(jobs) == count else None

            return wait_for(found, message=f"{count} finished jobs")

        client.enqueue("plain", "plain", ["a"])
        server.wait_for_notes(1, "a")
        assert not server.redis.exists(server.keys.finished)
        done = client.enqueue("kept", "work", ["b", 3], track=60)
        [job] = there(1)
        assert (job.jid, job.job_class, job.queue, job.args) == (done, "work", "kept", ["b", 3])
        facts = job.facts
        assert (facts.state, facts.attempts, facts.result_bytes, facts.error) == ("done", 1, 13, "")
        assert facts.at is not None
        assert 0 < facts.duration_s < 60
        assert ":" in facts.worker
        assert job.place.name == "class/work"
        client.enqueue("kept", "work", ["fail"], retry=1)
        [failed] = there(1, FinishedFilter(state="dead"))
        assert (failed.facts.attempts, failed.facts.error) == (2, "ValueError: it is broken")
        client.enqueue("own", "other", ["secret"])
        [own] = there(1, FinishedFilter(queue="own"))
        assert (own.has_args, own.job_class, own.args, own.place.name) == (False, "other", [], "queue/own")
        assert [one.jid for one in finished] == [own.jid, failed.jid, done]

        again = finished.enqueue_again(job.at)
        assert again != done
        server.wait_for_notes(2, "b", 3)
        copy, _ = there(2, FinishedFilter(job_class="work", state="done"))
        assert (copy.jid, copy.args, copy.facts.result_bytes) == (again, ["b", 3], 13)

        run = CliRunner().invoke
        shown = json.loads(run(main, ["finished", *options, "--jid", done, "--json"]).output)
        assert [(one["jid"], one["args"], one["at"]) for one in shown] == [(done, ["b", 3], job.at)]
        assert "dead" in run(main, ["finished", "--state", "dead", *options]).output
        assert run(main, ["finished", "again", job.at, *options]).exit_code == 0
        server.wait_for_notes(3, "b", 3)
        refused = run(main, ["finished", "again", own.at, *options])
        assert (refused.exit_code, "its arguments are not kept" in refused.output) == (1, True)
        gone = run(main, ["finished", "again", "1-1 server", *options])
        assert (gone.exit_code, "not kept any more" in gone.output) == (1, True)
