"""What people look at, page by page: reads of several keys, bounded by what a page shows."""
