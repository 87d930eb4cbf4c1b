"""Live: one read of Redis a second for all viewers, and the event stream that carries it to their pages."""
