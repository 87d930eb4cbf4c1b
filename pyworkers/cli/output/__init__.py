"""What the commands print: tables, times and JSON, in one form for all of them."""
