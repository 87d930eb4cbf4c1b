"""Record what ActiveJob's Sidekiq adapter writes to Redis, into ``payloads/ActiveJob-VERSION.json``.

    python -m tests.interop.record_active_job

Run by hand; the tests read the recordings. The versions that Ruby finds first are recorded: Debian's
ruby-activejob and ruby-sidekiq, or what GEM_PATH names.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import redis

from tests.helpers.support import free_port, running_server
from tests.interop.programs import RUBY, Ruby
from tests.interop.record import PAYLOADS, Recording

CALLS = (
    'Note.perform_later(7, "ä", nil, true, 2.5, [1])',
    'Note.perform_later(7, subject: "hello")',
    'Note.perform_later({a: 1, "b" => [{c: :d}]})',
    "Note.perform_later({a: {b: 1}}.with_indifferent_access)",
    "Note.perform_later(:now, { _aj: 1 })",
    'Note.perform_later(Time.at(1_719_828_000, 123_456_789, :nsec, in: "+02:00"))',
    "Note.perform_later(Time.at(0).utc)",
    'Note.perform_later(DateTime.new(2024, 2, 29, 12, 30, 15.5r, "-03:30"))',
    "Note.perform_later(Time.zone.local(2024, 7, 1, 12))",
    "Note.perform_later(Date.new(2024, 2, 29))",
    "Note.perform_later(90.minutes, 1.5.seconds, 1.month + 2.days, -1.hour)",
    'Note.perform_later(BigDecimal("-12345678901234567890.123456789"))',
    "Note.perform_later(User.new(7), [User.new(8)])",
    "Note.perform_later(User, Comparable)",
    "Note.perform_later([[{at: Time.at(0).utc}]], at: 5.minutes, user: User.new(7))",
    "Note.set(wait: 3600, priority: 3).perform_later(1)",
)
CALLS_SINCE_7_1 = (
    "Note.perform_later(1..10, 1...10, 3..1)",
    'Note.perform_later(Date.new(2024, 1, 1)..Date.new(2024, 1, 31), "a"..."c", 1..)',
)


def main() -> None:
    binary = shutil.which("redis-server")
    assert binary is not None
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with running_server(binary, folder, free_port()) as url, redis.Redis.from_url(url) as db:
            rails = Ruby(["ruby", RUBY / "active_job.rb"], {"REDIS_URL": url}, folder / "log")
            version = str(rails.call("evaluate", "ActiveJob.version.to_s"))
            recording = Recording(db, f"ActiveJob {version}")
            since_7_1 = tuple(map(int, version.split(".")[:2])) >= (7, 1)
            for call in CALLS + (CALLS_SINCE_7_1 if since_7_1 else ()):
                rails.call("evaluate", call)
                recording.take(call, "schedule" if "wait:" in call else "queue:python")
            rails.close()
            recording.write()


if __name__ == "__main__":
    PAYLOADS.mkdir(exist_ok=True)
    main()
