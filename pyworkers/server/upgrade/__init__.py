"""Upgrade: a new server, from the installed code, takes the place of a running one."""
