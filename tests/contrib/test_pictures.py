"""The pictures of the dashboard: the documents name them, and the script takes them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from contrib.pictures.__main__ import FOLDER, PICTURES
from tests.conftest import missing
from tests.helpers.support import ROOT
from tests.web.chromium import lacking

_NAMED = re.compile(r"pictures/(dashboard-[a-z]+\.png)")
_MOST_BYTES = 250_000


def test_each_picture_that_the_documents_name_is_taken(tmp_path: Path) -> None:
    if reason := lacking():
        missing(reason)
    subprocess.run([sys.executable, "-m", "contrib.pictures", tmp_path], cwd=ROOT, check=True)
    taken = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert taken.keys() == PICTURES.keys()
    assert all(5_000 < size < _MOST_BYTES for size in taken.values()), taken


def test_the_documents_name_each_picture_that_is_there() -> None:
    texts = [path.read_text() for path in (ROOT / "contrib" / "docs").rglob("*.md")]
    named = {name for text in texts for name in _NAMED.findall(text)}
    assert named <= PICTURES.keys()
    assert {path.name for path in FOLDER.glob("*.png")} == PICTURES.keys()
