"""The master's side of the pipes. Nothing here imports the application, or what runs it."""
