"""The state of the model ``Queue``, from which Django makes its permission."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes no table."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Queue",
            fields=[("name", models.CharField(max_length=255, primary_key=True, serialize=False))],
            options={"managed": False, "default_permissions": ("view",)},
        ),
    )
