"""Words for MQTTException: what happened and what to do. Loaded when one is printed."""

TEXT = {
    1: "the broker does not speak this protocol version: choose another protocol=",
    2: "the broker refuses this client id: choose another one",
    3: "the broker is not available now: try again later",
    4: "the broker refuses user name or password: check them",
    5: "the broker does not authorise this client: check user name, password and its access rules",
    16: "the broker broke the protocol",
    17: "no answer in time: see timeout=",
    18: "the connection was lost before the acknowledgement",
    19: "not connected",
    20: "the store is full: wait for acknowledgements, enlarge it or choose a policy=",
    21: "not possible from inside a callback: return from it first; if a call was broken off"
    " from outside, as by Ctrl-C: connect() again",
    22: "the broker closed the connection instead of answering CONNECT",
    23: "the store gave the message up before it was acknowledged: see policy= and max_age=",
    128: "the broker refuses the subscription",
}


def hint(client):
    """Why a broker may have hung up on this client's CONNECT."""
    if not client.keepalive:
        return "some brokers refuse keepalive=0: give keepalive= 1 to 65535 seconds"
    return "protocol, client id or login not to its liking?"


def text(e):
    """The sentence for an MQTTException: reason, number, detail, fate of the message."""
    s = "[%s] %s" % (e.reason, TEXT.get(e.reason, "refused by the broker"))
    if e.detail is not None:
        s += " (%s)" % (e.detail,)
    if e.stored:
        s += "; message %d is in the store and will be sent again by itself" % e.pid
    return s
