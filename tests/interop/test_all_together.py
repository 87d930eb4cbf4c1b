"""pyworkers, Sidekiq, go-workers and go-workers2 at once on one Redis."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import redis

from pyworkers import Client
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import go_environment, pyworkers, sidekiq, working


def test_a_job_that_is_due_is_moved_by_one_of_them_and_runs_once(
    sidekiq_installed: None, go_programs: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(pyworkers(tmp_path / "python", url))
        peers = [stack.enter_context(sidekiq(tmp_path / "ruby", url, "shared"))]
        for name in ("goworkers", "goworkers2"):
            command: list[str | Path] = [go_programs / name, "work", "shared"]
            peers.append(stack.enter_context(working(command, tmp_path / name, **go_environment(url, name))))
        client, jids = Client(url), set()

        def ran() -> Counter[str]:
            found = Counter(note[1] for note in server.ledger())
            for peer in peers:
                found.update(job["jid"] for job in peer.payloads())
            return found

        def all_have_run_some() -> bool:
            at = time.time() + 0.5
            jids.update(client.enqueue_bulk("shared", "Note", [[n] for n in range(100)], at=at))
            wait_for(lambda: len(ran()) == len(jids), PATIENCE_S, "this round has run")
            return bool(server.ledger()) and all(peer.payloads() for peer in peers)

        wait_for(all_have_run_some, PATIENCE_S)
        lists = ["queue:shared:goworkers:inprogress", "queue:shared:goworkers2:inprogress"]
        wait_for(lambda: not db.exists(*lists) and not server.inprogress("shared"), PATIENCE_S, "settled")
        assert ran() == Counter(jids)
    assert not db.exists("schedule", "retry", "goretry", "dead", "queue:shared")
