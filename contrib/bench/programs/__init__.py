"""The applications of the peers, which run in the peers' environments; peer.py says how they are called."""
