"""Settings of the example: SQLite, or PostgreSQL if PGHOST is set; a Redis of its own unless REDIS_URL is."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "only for the example"
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
USE_TZ = True
ROOT_URLCONF = "project.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = ["orders", "pyworkers.integrations.django"]

PYWORKERS = {"redis": {"url": f"embedded:{BASE_DIR / '.pyworkers'}"}}

DATABASES: dict[str, dict[str, str]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DB", str(BASE_DIR / "db.sqlite3")),
    }
}
if "PGHOST" in os.environ:
    DATABASES["default"] = {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}
