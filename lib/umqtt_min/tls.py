"""An SSLContext for `ssl=True`: certificate and host name are checked by default.

Knows: the ssl module of MicroPython and CPython. Loaded only when needed.
"""

import ssl
from binascii import a2b_base64


def load(client):
    """f(sock), which makes the connected socket the TLS stream that `client` asks for."""
    made = client.ssl if hasattr(client.ssl, "wrap_socket") else None
    ctx, name = context(client.ssl_params or {}, client.server, made)
    return lambda sock: handshake(sock, ctx, name)


def context(params, host, ssl_context=None):
    """Returns (SSLContext, server name for the handshake).

    ssl_context: one that the application made, or None: then only server_hostname may be in
    params; params: dict; cadata or cafile: the CA certificate, bytes in DER or PEM, or the
    name of a file of them; certificate and key: the client's own, likewise;
    server_hostname: the name in the certificate if it is not `host`; cert_reqs:
    ssl.CERT_NONE switches the check off, which lets anybody between here and the
    broker read and write.
    Raises ValueError without a CA, for unknown keys and bad certificates; OSError.
    """
    check(ssl_context or True, params)
    if ssl_context:
        return ssl_context, params.get("server_hostname", host)
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    reqs = params.get("cert_reqs", ssl.CERT_REQUIRED)
    if reqs == ssl.CERT_NONE:
        if hasattr(ctx, "check_hostname"):
            ctx.check_hostname = False
    elif "cadata" in params:
        _trust(ctx, params["cadata"])
    else:
        _trust(ctx, _read(params["cafile"]))
    ctx.verify_mode = reqs  # type: ignore[attr-defined]  # the stubs have left it out
    if "certificate" in params:
        own = _read(params["certificate"]), _read(params["key"])
        ctx.load_cert_chain(_der(own[0])[0], _der(own[1])[0])
    return ctx, params.get("server_hostname", host)


def check(made, params):
    """Raise ValueError for an `ssl` or `ssl_params` that no connection could be made with. What
    the certificates say is looked at when one is made."""
    known = ["server_hostname"]
    if hasattr(made, "wrap_socket"):
        _check_mode(getattr(made, "verify_mode", None), "SSLContext.verify_mode")
    else:
        if made != 1:
            raise ValueError("ssl=%r: True, False or an SSLContext" % (made,))
        known += ["cadata", "cafile", "certificate", "key", "cert_reqs"]
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise ValueError("ssl_params=%r: a dict" % (params,))
    for k in params:
        if k not in known:
            raise ValueError("ssl_params: unknown key %s; known: %s" % (k, ", ".join(known)))
        if k != "cert_reqs" and not isinstance(params[k], (str, bytes, bytearray, memoryview)):
            raise ValueError("ssl_params: %s=%r: str or bytes" % (k, params[k]))
    if len(known) > 1:
        _check_keys(params)


def _check_keys(params):
    reqs = params.get("cert_reqs", ssl.CERT_REQUIRED)
    _check_mode(reqs, "ssl_params: cert_reqs")
    if reqs not in (ssl.CERT_NONE, ssl.CERT_REQUIRED):
        raise ValueError("ssl_params: cert_reqs=%r: ssl.CERT_REQUIRED or ssl.CERT_NONE" % (reqs,))
    if "cadata" not in params and "cafile" not in params and params.get("cert_reqs", 2):
        raise ValueError("ssl=True needs ssl_params={'cadata': ...} or {'cafile': ...}"
                         " to check the broker's certificate with")
    if ("certificate" in params) != ("key" in params):
        raise ValueError("ssl_params: certificate and key go together")


def _check_mode(mode, name):
    # On MicroPython it looks at a certificate that is wrong, and goes on.
    if mode == ssl.CERT_OPTIONAL:
        raise ValueError("%s=ssl.CERT_OPTIONAL connects to anybody: ssl.CERT_REQUIRED checks who"
                         " it is, ssl.CERT_NONE says that you do not want it" % name)  # fmt: skip


def handshake(sock, ctx, server_hostname):
    """The TLS stream over the connected socket `sock`; its handshake is still to come."""
    try:
        sock.setsockopt(6, 1, 1)  # IPPROTO_TCP, TCP_NODELAY: the stream will not have it
    except (OSError, AttributeError):
        pass
    if hasattr(sock, "secure"):  # CPython's own
        return sock.secure(ctx, server_hostname)
    # do_handshake_on_connect=False: the handshake then runs inside write(), which
    # returns None until it is through, so that it can be bounded.
    tls = ctx.wrap_socket(sock, server_hostname=server_hostname, do_handshake_on_connect=False)
    tls.setblocking(False)
    return tls


def _read(what):
    # The contents of a file, if it is the name of one.
    if isinstance(what, str) and not what.startswith("-----"):
        with open(what, "rb") as f:
            return f.read()
    return what


def _trust(ctx, data):
    for der in _der(data):
        ctx.load_verify_locations(cadata=der)


def _der(data):
    # MicroPython's mbedtls is built without PEM: a list of what is in `data`, in DER.
    data = data.encode() if isinstance(data, str) else bytes(data)
    if b"-----BEGIN" not in data:
        return [data]
    out = []
    for part in data.split(b"-----BEGIN ")[1:]:
        part = part.split(b"-----")
        if len(part) < 3 or not part[2].startswith(b"END "):
            raise ValueError("ssl_params: PEM without END line")
        out.append(a2b_base64(part[1]))
    return out
