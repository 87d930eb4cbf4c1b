"""What the processes of one server say to each other, as bytes. No module does I/O."""
