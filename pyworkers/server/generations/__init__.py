"""Fork servers: their start, the messages to and from them, and their replacement by a reload."""
