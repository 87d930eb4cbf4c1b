"""Tests of the integration of Django, with real projects."""
