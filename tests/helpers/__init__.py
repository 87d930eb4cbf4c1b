"""Shared by the tests of several folders: waiting for a condition, servers, proxies, records in Redis.

Read by the tests alone. A helper of one folder stays in that folder.
"""
