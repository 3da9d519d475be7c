"""The one error that ends a step: a sentence that says what is wrong and what to do about it."""

import json
import ssl


class BoardError(Exception):
    """Shown to the user as it stands; the command line ends with status 2."""


def reason(error):
    """What to tell the user of an exception that came while something was read: its own words, or
    ours for those that speak of Python's objects."""
    if isinstance(error, (KeyError, TypeError, AttributeError, RecursionError)):
        return "it does not have the form that it should have"
    if isinstance(error, json.JSONDecodeError):
        return f"it is no JSON from line {error.lineno}, column {error.colno}, on"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS fails, {error.reason.replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, UnicodeError):
        return "it is no text in UTF-8"
    return str(error)
