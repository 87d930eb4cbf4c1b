"""HTTP: what the dashboard and the endpoint of a server share: bounds of connections, and allowed hosts."""
