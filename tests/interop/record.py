"""Record what the peers write to Redis into ``payloads/NAME.json``, byte for byte, with the calls.

    python -m tests.interop.record

Run by hand when a peer changes; the tests read the recordings. The Sidekiq that is first on PATH is recorded.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import redis

from tests.helpers.replies import as_bytes, as_list, as_scores
from tests.helpers.support import free_port, running_server, wait_for
from tests.interop.programs import (
    GO,
    HERE,
    RUBY,
    GoProducer,
    Ruby,
    go_environment,
    hurry,
    only,
    sidekiq,
    working,
)

PAYLOADS = HERE / "payloads"
# The versions of go.mod; go-workers has no releases.
GO_PEERS = {"goworkers": "go-workers dbf81d0", "goworkers2": "go-workers2 0.10.4"}


class Recording:
    """The payloads of one peer, each with where it was found."""

    def __init__(self, db: redis.Redis, origin: str) -> None:
        self.db = db
        self.origin = origin
        self.found: list[dict[str, Any]] = []

    def take(self, call: str, key: str) -> None:
        """Keep what ``call`` left at ``key``, a list or sorted set of one, and remove it."""
        if self.db.type(key) == b"list":
            raw = as_bytes(self.db.lindex(key, 0))
            self.found.append({"call": call, "key": key, "payload": raw.decode()})
        else:
            [(raw, score)] = as_scores(self.db.zrange(key, 0, -1, withscores=True))
            self.found.append({"call": call, "key": key, "score": score, "payload": raw.decode()})
        self.db.flushall()

    def write(self) -> None:
        path = PAYLOADS / f"{self.origin.replace(' ', '-')}.json"
        path.write_text(json.dumps({"origin": self.origin, "payloads": self.found}, indent=1) + "\n")
        print(path, len(self.found))


def record_sidekiq(db: redis.Redis, url: str, folder: Path) -> None:
    version = subprocess.run(["sidekiq", "--version"], capture_output=True, text=True, check=True).stdout
    recording = Recording(db, version.strip().splitlines()[-1])
    jobs = shutil.copytree(RUBY, folder / "jobs")  # so that no backtrace names a path of this machine
    console = Ruby(["ruby", RUBY / "console.rb"], {"REDIS_URL": url}, folder / "console.log")
    console.call("push", {"class": "Note", "queue": "python", "args": [1, "ä<&", {"a": None}]})
    recording.take('Client.push("class" => "Note", "queue" => "python", "args" => […])', "queue:python")
    console.call("perform_async", "Note", {"retry": 5, "tags": ["t"], "backtrace": True}, 1)
    recording.take('Note.set(retry: 5, tags: ["t"], backtrace: true).perform_async(1)', "queue:python")
    console.call("perform_in", "Note", 3600, 1)
    recording.take("Note.perform_in(3600, 1)", "schedule")
    console.call("push", {"class": "Fail", "queue": "ruby", "args": [1], "backtrace": 1, "extra": {"b": 1.5}})
    with sidekiq(folder / "sidekiq", url, "ruby", jobs=jobs):
        only(db, "retry", retry_count=0)
        first = as_list(db.zrange("retry", 0, -1))[0]
        hurry(db, "retry")
        only(db, "retry", retry_count=1)
    recording.take("its second failure in Sidekiq", "retry")
    db.zadd("retry", {first: time.time() + 20})
    recording.take("the first failure of a job pushed with backtrace: 1", "retry")
    console.call("push", {"class": "Fail", "queue": "ruby", "args": [1], "retry": 0})
    with sidekiq(folder / "sidekiq", url, "ruby", jobs=jobs):
        only(db, "dead")
    recording.take("the failure of a job pushed with retry: 0", "dead")
    console.close()
    recording.write()


def record_go(db: redis.Redis, url: str, folder: Path, name: str) -> None:
    recording = Recording(db, GO_PEERS[name])
    subprocess.run(["go", "build", "-o", f"{folder}/", f"./{name}"], cwd=GO, check=True)
    producer = GoProducer([folder / name, "produce"], go_environment(url, "1"), folder / f"{name}.log")
    producer.call("Enqueue", "python", "Note", [1, "ä<&", {"a": None}])
    recording.take('Enqueue("python", "Note", […])', "queue:python")
    producer.call("Enqueue", "python", "Note", {"not": "a list"})
    recording.take('Enqueue("python", "Note", map[string]string{…})', "queue:python")
    producer.call("EnqueueIn", "python", "Note", [1], **{"in": 3600})
    recording.take('EnqueueIn("python", "Note", 3600, []int{1})', "schedule")
    options = {"retry": True} | ({"retry_max": 3} if name == "goworkers2" else {})
    told = f"EnqueueOptions{json.dumps(options)}"
    producer.call("EnqueueWithOptions", "python", "Note", [1], options=options)
    recording.take(f'EnqueueWithOptions("python", "Note", []int{{1}}, {told})', "queue:python")
    producer.call("EnqueueWithOptions", "go", "Fail", ["ä<&"], options=options)
    with working([folder / name, "work", "go"], folder / f"{name}-worker", **go_environment(url, "1")):
        only(db, "goretry", retry_count=0)
        first = as_list(db.zrange("goretry", 0, -1))[0]
        hurry(db, "goretry")
        only(db, "goretry", retry_count=1)
    recording.take("its second failure in Go", "goretry")
    db.zadd("goretry", {first: time.time() + 20})
    recording.take(f"the first failure of a job enqueued with {told}", "goretry")
    # Nobody works on this queue: what its scheduler moved stays there.
    producer.call("EnqueueIn", "python", "Note", [1], **{"in": 0.5})
    with working([folder / name, "work", "go"], folder / f"{name}-worker", **go_environment(url, "1")):
        wait_for(lambda: db.exists("queue:python"), message="moved")
    recording.take("EnqueueIn, moved to its queue by the library's scheduler", "queue:python")
    producer.close()
    recording.write()


def main() -> None:
    PAYLOADS.mkdir(exist_ok=True)
    binary = shutil.which("redis-server")
    assert binary is not None
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with running_server(binary, folder, free_port()) as url, redis.Redis.from_url(url) as db:
            record_sidekiq(db, url, folder)
            for name in GO_PEERS:
                record_go(db, url, folder, name)


if __name__ == "__main__":
    main()
