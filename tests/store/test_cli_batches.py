"""``pyworkers batches``."""

from __future__ import annotations

import json

from pyworkers import Client
from pyworkers.protocol.flow.plans import BatchPlan
from tests.store.conftest import Cli


def test_batches_are_listed_shown_and_deleted(cli: Cli, redis_url: str, namespace: str) -> None:
    assert cli("batches").output == "No batches.\n"
    with Client(redis_url, namespace=namespace) as client:
        client.enlist(BatchPlan("b", "hold", {"description": "import 7"}, members=["j1", "j2"]))
    [listed] = json.loads(cli("batches", "--json").output)
    assert (listed["id"], listed["total"], listed["pending"], listed["state"]) == ("b", 2, 2, "running")
    assert "import 7" in cli("batches").output
    shown = json.loads(cli("batches", "show", "b", "--json").output)
    assert shown["members"] == {"waiting": ["j1", "j2"], "failed": [], "dead": []}
    assert "j1 j2" in cli("batches", "show", "b").output
    assert json.loads(cli("batches", "delete", "b", "--json").output) == {
        "action": "delete",
        "done": 1,
        "deleted": ["b"],
    }
    for words in (["show", "b"], ["delete", "b"]):
        assert cli("batches", *words).exit_code == 1
