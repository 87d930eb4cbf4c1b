"""The messages between the processes of one server, as bytes. No module does I/O."""
