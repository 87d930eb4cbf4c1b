"""A shop: a view enqueues a job in a transaction."""
