"""The one exception of the library, and why it was raised.

Network errors are OSError, bad arguments ValueError; all else that a broker or
a full store can bring about is MQTTException. Nothing else escapes.
"""

from .exception import MQTTException  # noqa: F401  (who needs it does not need the numbers)
from .port import const

# errno, as every port of MicroPython numbers it
ECONNRESET = const(104)
ENOTCONN = const(107)
ETIMEDOUT = const(110)

# CONNACK return codes [MQTT 3.1.1, table 3.1]: the broker refused the login.
REFUSED_PROTOCOL = const(1)
REFUSED_CLIENT_ID = const(2)
REFUSED_UNAVAILABLE = const(3)
REFUSED_LOGIN = const(4)
REFUSED_AUTHORISATION = const(5)
# What the library itself finds out.
PROTOCOL = const(16)  # the broker sent what the specification forbids
TIMEOUT = const(17)  # no answer in time; the connection may still be up
LOST = const(18)  # the connection ended before the acknowledgement came
NOT_CONNECTED = const(19)  # stored, but there is no connection to send it on
STORE_FULL = const(20)
BUSY = const(21)  # called from a callback where it must not wait
CLOSED = const(22)  # the broker hung up instead of sending CONNACK
GIVEN_UP = const(23)  # the store dropped the message: its policy, max_age, discard()
SUBSCRIBE_REFUSED = const(128)  # SUBACK 0x80 [MQTT-3.9.3-2]
