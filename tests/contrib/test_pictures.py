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


def test_the_script_takes_the_pictures_that_are_named(tmp_path: Path) -> None:
    """A page, and one by search in a window of another size; tests/web/test_browser.py opens each page."""
    if reason := lacking():
        missing(reason)
    names = {"dashboard-phone.png", "dashboard-job.png"}
    subprocess.run([sys.executable, "-m", "contrib.pictures", tmp_path, *names], cwd=ROOT, check=True)
    assert {path.name for path in tmp_path.iterdir() if path.stat().st_size > 5_000} == names


def test_the_pictures_that_are_there_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.glob("*.png")}
    assert all(5_000 < size < _MOST_BYTES for size in sizes.values()), sizes


def test_the_documents_name_each_picture_that_is_there() -> None:
    texts = [path.read_text() for path in (ROOT / "contrib" / "docs").rglob("*.md")]
    named = {name for text in texts for name in _NAMED.findall(text)}
    assert named <= PICTURES.keys()
    taken = {path.name for path in FOLDER.glob("*.png")}
    assert taken == PICTURES.keys(), "python -m contrib.pictures FOLDER NAME takes one; a document shows it"
