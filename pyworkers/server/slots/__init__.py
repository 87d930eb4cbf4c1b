"""Slots: what the master does at the slots of cron entries. Nothing here knows all entries."""
