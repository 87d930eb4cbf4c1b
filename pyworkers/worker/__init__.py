"""The worker's side of the pipes: the fork server, which imports the application, and the forked workers."""
