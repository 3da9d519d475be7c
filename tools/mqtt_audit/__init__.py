"""The wire audit: captured traffic to tables of packets, connections, exchanges and violations.

Each module says in its first lines what it knows and what it must not know; README.md has
the rooms.
"""
