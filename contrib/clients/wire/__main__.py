"""Write the files of the wire, and their copies in the clients: ``python -m contrib.clients.wire``."""

from __future__ import annotations

from contrib.clients.wire import FOLDER, copies, files

for name, text in {**files(), **copies()}.items():
    (FOLDER / name).write_text(text)
