"""Finished jobs without Redis: what is kept of one, and what ``keep`` may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Worker
from pyworkers.config.fields import Config
from pyworkers.config.loading import load
from pyworkers.errors import ConfigError, DeclarationError
from pyworkers.ipc.control import Settings
from pyworkers.protocol.flow.finished import FinishedFacts, entry, read_entry
from pyworkers.protocol.keeping import Keep, check_keep
from pyworkers.server import _kept
from pyworkers.worker.chains import Chains


def load_text(folder: Path, text: str) -> Config:
    (folder / "workers.toml").write_text(text)
    return load(folder / "workers.toml", env={})


FACTS = FinishedFacts("done", 1_795_225_197.5, 1.25, 2, "host:7", 12, "")
DATA = {"class": "Add", "jid": "j1", "args": [1, "ä"], "queue": "q", "retry": True}
RAW = json.dumps(DATA).encode()


@pytest.mark.parametrize("with_args", [True, False])
def test_an_entry_is_read_as_it_was_made(with_args: bool) -> None:
    made = entry(Keep("server", 10, 60, with_args), FACTS, DATA, RAW, "q")
    assert (made.name, made.most, made.ttl_s) == ("server", 10, 60)
    found = read_entry(made.entry)
    assert found is not None
    assert (found.facts, found.has_args) == (FACTS, with_args)
    assert found.job == (DATA if with_args else {"class": "Add", "jid": "j1", "queue": "q"})
    assert len(made.entry) < 300


def test_a_long_job_is_kept_without_its_arguments() -> None:
    data = {**DATA, "args": ["x" * 5000]}
    found = read_entry(entry(Keep("server", 10, 60), FACTS, data, json.dumps(data).encode(), "q").entry)
    assert found is not None
    assert not found.has_args


@pytest.mark.parametrize("packed", [b"", b"\xff", b"[]", b"{}", b'{"job":7}', b"[" * 10_000])
def test_a_foreign_entry_counts_as_missing(packed: bytes) -> None:
    assert read_entry(packed) is None


def test_facts_of_a_foreign_entry_count_as_missing() -> None:
    found = read_entry(b'{"at":"x","state":7,"ms":1e400,"attempts":-1,"result":true,"job":{"class":7}}')
    assert found is not None
    assert found.facts == FinishedFacts("", None, 0.0, 0, "", None, "")


@pytest.mark.parametrize(
    ("value", "read"), [((1000, 86400), (1000, 86400)), (("10", "60"), (10, 60)), ([], None), ((), None)]
)
def test_keep_is_a_number_and_seconds(value: Any, read: object) -> None:
    assert check_keep(value) == read


@pytest.mark.parametrize(
    "value", [7, "10", (1,), (0, 1), (1, 0), (1, 2, 3), (True, 1), (1.5, 1), ("a", "b"), (10**7, 1), None]
)
def test_another_keep_is_refused_with_the_rule(value: Any) -> None:
    with pytest.raises(ValueError, match=r"keep must be \[number of jobs, seconds\]"):
        check_keep(value)


def test_a_queue_decides_before_a_job_and_a_job_before_the_server(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        """
        [server]
        keep = [10, 60]
        [queues.own]
        keep = [20, 120]
        keep_args = false
        [queues.none]
        keep = []
        """,
    )
    kept = _kept(config)
    assert kept == {"": [10, 60, True], "own": [20, 120, False], "none": []}
    worker = Worker()

    @worker.job(queue="q", keep=(5, 30), keep_args=False)
    def kept_job() -> None: ...

    @worker.job(queue="q")
    def other() -> None: ...

    chains = Chains(worker, Settings(keep=kept), None)  # type: ignore[arg-type]
    of_job, of_other = worker.lookup("q", "kept_job"), worker.lookup("q", "other")
    assert chains._kept("own", of_job) == Keep("queue/own", 20, 120, with_args=False)
    assert chains._kept("none", of_job) is None
    assert chains._kept("q", of_job) == Keep("class/kept_job", 5, 30, with_args=False)
    assert chains._kept("q", of_other) == Keep("server", 10, 60)
    assert Chains(worker, Settings(), None)._kept("q", of_other) is None  # type: ignore[arg-type]


def test_a_wrong_keep_is_an_error_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep must be"):
        load_text(tmp_path, "[server]\nkeep = [0, 1]")
    with pytest.raises(DeclarationError, match="keep must be"):
        Worker().job(keep=(1,))(lambda: None)
