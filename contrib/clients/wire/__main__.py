"""Write the files of the wire: ``python -m contrib.clients.wire``."""

from __future__ import annotations

from contrib.clients.wire import FOLDER, files

for name, text in files().items():
    (FOLDER / name).write_text(text)
