"""One file for each job server; ``registry`` names them all."""
