"""Joining a network, losing it, being refused: against a radio that answers as the ports' do."""

import umqtt_min.backoff as backoff
import wifi


class Radio:
    """network.WLAN of a port; `state` is what isconnected() and status() tell."""

    STA_IF = 0

    def __init__(self, codes):
        self.idle, self.joining, self.got, self.wrong = codes
        self.state = self.idle
        self.calls = []
        self.raises = False

    def WLAN(self, interface):
        assert interface == self.STA_IF
        return self

    def active(self, on):
        self.calls.append("active")

    def config(self, **options):
        raise ValueError("unknown config param")

    def isconnected(self):
        return self.state == self.got

    def status(self):
        return self.state

    def connect(self, ssid, password):
        if self.raises:
            raise OSError(5)
        self.calls.append((ssid, password))
        self.state = self.joining

    def disconnect(self):
        self.calls.append("disconnect")

    def ifconfig(self):
        return ("10.0.0.7", "", "", "")


# idle, joining, got address, wrong password: esp32's network.STAT_*, and rp2's CYW43_LINK_*
ESP32 = (1000, 1001, 1010, 202)
RP2 = (0, 1, 3, -3)


class Bench:
    """A Wifi on a Radio, with a clock that moves by hand."""

    def __init__(self, codes, password="secret12"):
        self.now = (1 << 30) - 5000
        self.lines = []
        self.saved = (wifi.network, wifi.ticks_ms, backoff.ticks_ms)
        self.radio = wifi.network = Radio(codes)
        wifi.ticks_ms = backoff.ticks_ms = lambda: self.now
        self.wifi = wifi.Wifi("home", password, 100, 1000, self.lines.append)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        wifi.network, wifi.ticks_ms, backoff.ticks_ms = self.saved

    def wait(self, ms):
        self.now = (self.now + ms) % (1 << 30)

    def joins(self):
        return len([call for call in self.radio.calls if isinstance(call, tuple)])


def test_joins_and_says_so_once():
    for codes in (ESP32, RP2):
        with Bench(codes) as b:
            assert not b.wifi.joined()
            assert not b.wifi.joined()
            assert b.joins() == 1
            b.radio.state = b.radio.got
            assert b.wifi.joined() and b.wifi.joined()
            assert b.lines == ["wifi joined as 10.0.0.7"]
            assert b.wifi.joins == 1


def test_wrong_password_is_tried_again_after_a_pause():
    for codes in (ESP32, RP2):
        with Bench(codes) as b:
            b.wifi.joined()
            b.radio.state = b.radio.wrong
            b.wifi.joined()
            assert "not joined (status %d)" % b.radio.wrong in b.lines[-1]
            b.wait(1000)
            b.wifi.joined()
            assert b.joins() == 2


def test_join_that_hangs_is_begun_again():
    for codes in (ESP32, RP2):
        with Bench(codes) as b:
            b.wifi.joined()
            b.wait(wifi.JOIN_MS - 1)
            b.wifi.joined()
            assert "disconnect" not in b.radio.calls
            b.wait(1)
            b.wifi.joined()
            assert "disconnect" in b.radio.calls
            b.wait(1000)
            b.wifi.joined()
            assert b.joins() == 2


def test_lost_network_is_joined_again():
    for codes in (ESP32, RP2):
        with Bench(codes) as b:
            b.wifi.joined()
            b.radio.state = b.radio.got
            b.wifi.joined()
            b.radio.state = b.radio.idle
            assert not b.wifi.joined()
            assert b.lines[-1] == "wifi lost"
            b.wait(1000)
            assert not b.wifi.joined()
            b.radio.state = b.radio.got
            assert b.wifi.joined() and b.wifi.joins == 2


def test_radio_that_raises_does_not_end_the_firmware():
    with Bench(RP2) as b:
        b.radio.raises = True
        for _ in range(5):
            assert not b.wifi.joined()
            b.wait(1000)
        b.radio.raises = False
        b.wifi.joined()
        assert b.joins() == 1


def test_open_network_has_no_password():
    with Bench(RP2, password="") as b:
        b.wifi.joined()
        assert ("home", None) in b.radio.calls


def test_board_without_wifi_counts_as_joined():
    with Bench(RP2) as b:
        wifi.network = None
        assert wifi.Wifi("home", "secret12", 100, 1000, None).joined()
        wifi.network = b.radio
        assert wifi.Wifi("", "", 100, 1000, None).joined()
