"""What a dashboard itself keeps in Redis."""
