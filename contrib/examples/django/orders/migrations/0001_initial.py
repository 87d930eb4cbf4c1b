"""The table of the orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the table."""

    initial = True
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("customer", models.CharField(max_length=100)),
                ("status", models.CharField(default="new", max_length=20)),
            ],
        ),
    )
