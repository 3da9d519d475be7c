"""Rows to tables, summaries and the page."""
