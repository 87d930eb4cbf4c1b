"""What the commands print: tables, times, warnings and JSON, in one form for all of them."""
