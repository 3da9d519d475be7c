"""The way from the broker to the tables: a durable spool, a Spark source and tables of Delta Lake.

Each module says in its first lines what it knows and what it must not know; README.md has the
picture, DESIGN.md the modules. Nothing here is imported by device code.
"""
