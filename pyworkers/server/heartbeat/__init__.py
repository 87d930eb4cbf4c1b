"""The heartbeat: what a server shows about itself in Redis, and when it writes it."""
