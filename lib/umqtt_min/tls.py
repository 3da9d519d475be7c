"""An SSLContext for `ssl=True`: certificate and host name are checked by default.

Knows: the ssl module of MicroPython and CPython. Loaded only when needed.
"""

import ssl


def context(params, host):
    """Returns (SSLContext, server name for the handshake).

    params: dict; cadata or cafile: the CA certificate (bytes in DER or PEM, or a
    file name); certificate and key: the client's own; server_hostname: the name in
    the certificate if it is not `host`; cert_reqs: ssl.CERT_NONE switches the check
    off, which lets anybody between here and the broker read and write.
    Raises ValueError without a CA, and for unknown keys; OSError.
    """
    known = ("cadata", "cafile", "certificate", "key", "server_hostname", "cert_reqs")
    for k in params:
        if k not in known:
            raise ValueError("ssl_params: unknown key %s" % k)
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    reqs = params.get("cert_reqs", ssl.CERT_REQUIRED)
    if reqs == ssl.CERT_NONE:
        if hasattr(ctx, "check_hostname"):
            ctx.check_hostname = False
    elif "cadata" in params:
        ctx.load_verify_locations(cadata=params["cadata"])
    elif "cafile" in params:
        ctx.load_verify_locations(cafile=params["cafile"])
    else:
        raise ValueError("ssl=True needs ssl_params={'cadata': ...} or {'cafile': ...}"
                         " to check the broker's certificate with")
    ctx.verify_mode = reqs
    if "certificate" in params:
        ctx.load_cert_chain(params["certificate"], params["key"])
    return ctx, params.get("server_hostname", host)
