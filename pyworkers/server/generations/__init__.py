"""Fork servers: how one is started and spoken to, and how a reload replaces it."""
