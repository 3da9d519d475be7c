"""TLS: the broker's certificate and its name are checked against an authority of your own.

ca.der is the certificate of the authority (CA) that signed the broker's, in DER or PEM;
copy it onto the board. `server` must be a name in the broker's certificate: where you have
only an address, say which name is expected with "server_hostname". The clock need not be
set: MicroPython's ports do not check validity dates unless they are built to.
"""

from umqtt_min import MQTTClient

SERVER = "broker.example"


def main(server=SERVER, port=8883, ca="ca.der"):
    client = MQTTClient("tls", server, port, keepalive=60, ssl=True, ssl_params={"cafile": ca})
    client.connect()  # OSError if the certificate or the name is not right
    client.publish("greetings", "hello, nobody else can read this", qos=1)
    client.disconnect()


if __name__ == "__main__":
    main()
