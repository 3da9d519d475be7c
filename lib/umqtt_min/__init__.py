"""umqtt_min: an MQTT client that loses nothing and allocates nothing.

    from umqtt_min import MQTTClient, FileStore

A superset of umqtt.simple. What is not used is not loaded: the stores, the older
protocols and the tools for subscriptions are imported when they are first named.
"""

from .client import MQTTClient
from .exception import MQTTException
from .packets import MQTT_3_1_1

__version__ = "0.1.0"


def __getattr__(name):
    from .lazy import find

    return find(name)
