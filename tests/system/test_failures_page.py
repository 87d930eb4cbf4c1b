"""The programs of contrib/docs/failures.md run, and do what the page says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.helpers.records import job
from tests.helpers.server_process import serving
from tests.helpers.support import ROOT, wait_for

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "contrib/docs/failures.md").read_text(), re.DOTALL)
ENDS = {
    "offline": ("retry", "ConnectionRefusedError"),
    "declined": ("discard", "Declined"),
    "expired": ("dead", "CardExpired"),
    "bug": ("dead", "KeyError"),
}


def test_the_class_of_the_exception_decides(tmp_path: Path, redis_url: str, namespace: str) -> None:
    with serving(tmp_path, redis_url, namespace, PROGRAMS[0]) as server:
        server.push("pay", *(job(how, "charge", how) for how in ENDS))
        found = {how: server.wait_for_event("job.failed", jid=how) for how in ENDS}
        wait_for(lambda: server.settled("pay"))
        assert {name: len(server.zset(name)) for name in ("retry", "dead")} == {"retry": 1, "dead": 2}
    ends = {how: (end["outcome"], end["error_class"].rpartition(".")[2]) for how, end in found.items()}
    assert ends == ENDS
