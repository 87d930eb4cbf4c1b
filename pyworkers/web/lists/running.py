"""Running: the threads of this process that work on tasks.

A thread ends with its process: the task then says that its dashboard ended.
"""

from __future__ import annotations

from threading import Thread

from pyworkers.api.browse.tasks import Task
from pyworkers.api.browse.work import work_on
from pyworkers.web.site import Site


def start(site: Site, task: Task) -> None:
    """Count the jobs of a task, or act on them, in a thread of its own."""
    Thread(target=work_on, args=(site.admin, task), name=f"task {task.id}", daemon=True).start()
