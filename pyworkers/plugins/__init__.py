"""Plug-ins: features on top of client middleware, effects and middleware, one file each."""
