"""The `socket` of a MicroPython that has no network: enough for the library to be imported.

Knows: nothing.  Must not know: anything else; a test there gives the client a connector.
"""

SOCK_STREAM = 1
socket = None
