"""The HTTP endpoint of a server: /stats, /livez, /readyz and /metrics. Needs the extra ``http``."""
