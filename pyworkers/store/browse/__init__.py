"""What people look at, part by part: no command here reads a whole queue or set."""
