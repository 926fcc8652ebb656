"""Keeps one ``npucall-server`` a device on the hosts of a Ray cluster: the command npucall-pool.

Ray starts keepers, and starts them again. Whether a member lives is not Ray's to say: servers
announce themselves to the pool's directory. No call passes through Ray.
"""
