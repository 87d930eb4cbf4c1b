"""Adds the permission ``pyworkers.operate_queue``."""

from django.db import migrations


class Migration(migrations.Migration):
    """Makes no table."""

    dependencies = (("pyworkers", "0001_initial"),)
    operations = (
        migrations.AlterModelOptions(
            name="queue", options={"managed": False, "default_permissions": ("view", "operate")}
        ),
    )
