"""Reference: the pages of the documents' site that are written from the code.

Run by ``make docs`` and by the tests. Nothing here changes a file, and no part of pyworkers imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from contrib.reference import api, commands, configuration, errors, events, joboptions, metrics

# Path below contrib/docs: the function that writes its text.
PAGES: Mapping[str, Callable[[], str]] = {
    **{f"reference/{module}.md": page for module, page in api.pages().items()},
    "reference/commands.md": commands.page,
    "reference/configuration.md": configuration.page,
    "reference/errors.md": errors.page,
    "reference/events.md": events.page,
    "reference/options.md": joboptions.page,
    "reference/metrics.md": metrics.page,
}
