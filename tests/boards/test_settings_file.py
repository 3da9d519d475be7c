"""Settings: from file, environment and questions; what is mistyped gets a suggestion."""

import ssl

import pytest
from certificates import Authority
from umqtt_board.errors import BoardError
from umqtt_board.settings import ca_file, settings_file, subject

GOOD = {"broker": {"host": "h"}}


@pytest.mark.parametrize("data, said", [
    ({"broker": "x"}, r'broker: expected a table with host, port, .*got str.*"broker.host = ..."'),
    ({"brokr": {"host": "h"}}, r"\[brokr\]: unknown table; did you mean \[broker\]\?"),
    ({"broker": {"host": "h", "prot": 1}}, "broker.prot: unknown key; did you mean broker.port?"),
    (GOOD | {"intervall_ms": 1}, "intervall_ms: unknown key; did you mean interval_ms?"),
    (GOOD | {"ssid": "x"}, "ssid: unknown key; did you mean wifi.ssid?"),
    (GOOD | {"hosst": "x"}, "hosst: unknown key; did you mean broker.host?"),
    (GOOD | {"xyzzy": "x"}, r"xyzzy: unknown key$"),
    ([1], "expected a table of keys, got list"),
])  # fmt: skip
def test_a_mistyped_key_gets_a_suggestion(tmp_path, data, said):
    path = tmp_path / "settings.json"
    path.write_text(settings_file.json.dumps(data))
    with pytest.raises(BoardError, match=said.replace("?", r"\?") if "\\" not in said else said):
        settings_file.gather(path, {})


@pytest.fixture
def authority(tmp_path):
    """A certificate authority, whose certificate lies in tmp_path as ca.pem and as ca.der."""
    made = Authority("umqtt_min test CA")
    (tmp_path / "ca.pem").write_bytes(made.pem)
    (tmp_path / "ca.der").write_bytes(made.certificate)
    return made


def _with_ca(tmp_path, ca, environment=()):
    path = tmp_path / "settings.json"
    path.write_text(settings_file.json.dumps({"broker": {"host": "h", "ca": ca}}))
    return settings_file.gather(path, dict(environment))


@pytest.mark.parametrize("name", ["ca.pem", "ca.der"])
def test_a_certificates_file_beside_the_settings_goes_to_the_board_as_text(
    tmp_path, authority, name
):
    found = _with_ca(tmp_path, name)["broker.ca"]
    assert ssl.PEM_cert_to_DER_cert(found) == authority.certificate
    assert _with_ca(tmp_path, str(tmp_path / name))["broker.ca"] == found
    assert _with_ca(tmp_path, found)["broker.ca"] == found
    assert _with_ca(tmp_path, "/ca.der")["broker.ca"] == "/ca.der"  # one that lies on the board
    from_variable = _with_ca(tmp_path, "x", {"UMQTT_BROKER_CA": str(tmp_path / name)})
    assert from_variable["broker.ca"] == found


def test_a_name_with_a_tilde_is_in_the_home_folder(tmp_path, authority, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    pem = authority.pem.decode()
    assert _with_ca(tmp_path / "..", "~/ca.pem")["broker.ca"] == pem
    assert _with_ca(tmp_path, "x", {"UMQTT_BROKER_CA": "~/ca.pem"})["broker.ca"] == pem
    with pytest.raises(BoardError, match=f"broker.ca: .*; {tmp_path}/none.pem cannot be read"):
        _with_ca(tmp_path, "~/none.pem")


def test_a_folder_is_no_file_of_the_board(tmp_path):
    for ca in (str(tmp_path), "."):
        with pytest.raises(BoardError, match=f"broker.ca: .*; {tmp_path} is a folder"):
            _with_ca(tmp_path, ca)


def test_what_is_no_certificate_is_refused_before_anything_is_done(tmp_path, authority):
    (tmp_path / "two.pem").write_bytes(authority.pem * 2)
    (tmp_path / "text").write_text("hello")
    (tmp_path / "umlaut").write_text("-----BEGIN CERTIFICATE-----\nä\n-----END CERTIFICATE-----")
    for ca, said in (("none.pem", "none.pem cannot be read: No such file"),
                     ("two.pem", "expected one certificate in .*two.pem, got 2"),
                     ("umlaut", "expected a certificate in .*umlaut, got"),
                     ("text", "expected a certificate in .*text, got"),
                     ("-----BEGIN CERTIFICATE-----\nnonsense", "expected a certificate, got")):
        with pytest.raises(BoardError, match=f"broker.ca: .*{said}"):
            _with_ca(tmp_path, ca)


@pytest.mark.parametrize("order", [("key", "cert"), ("cert", "key")])
@pytest.mark.parametrize("setting", ["ca", "cert"])
def test_a_certificates_file_with_a_private_key_in_it_is_refused(
    tmp_path, authority, order, setting
):
    """The key would lie on each board, in a setting that is no secret."""
    cert, key = authority.issue("a")
    (tmp_path / "both.pem").write_bytes(b"".join({"cert": cert, "key": key}[n] for n in order))
    (tmp_path / "key").write_bytes(key)
    path = tmp_path / "settings.json"
    broker = {"host": "h", "ca": "ca.pem", "cert": "ca.pem", "key": "key", setting: "both.pem"}
    path.write_text(settings_file.json.dumps({"broker": broker}))
    with pytest.raises(BoardError, match=f"broker.{setting}: .*both.pem, got a private key, too"):
        settings_file.gather(path, {})
    flat = {f"broker.{setting}": (tmp_path / "both.pem").read_text()}  # in a copy of a board
    assert "got a private key, too" in ca_file.faults(flat, {})[0]


def test_text_around_a_certificate_stays_away_from_the_board(tmp_path, authority):
    """As `openssl x509 -text` and `openssl ecparam` write it: the board reads from the first line
    that begins a certificate or a key, and takes other text for the name of a file."""
    cert, key = authority.issue("a")
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    around = "Certificate:\n    Issuer: CN=Gerät\n".encode()
    for name, data in (("ca", authority.pem), ("cert", cert), ("key", parameters + key)):
        (tmp_path / name).write_bytes(around + data + b"more\n")
    path = tmp_path / "settings.json"
    path.write_text('{"broker": {"host": "h", "ca": "ca", "cert": "cert", "key": "key"}}')
    flat = settings_file.gather(path, {})
    assert [flat[f"broker.{name}"].encode() for name in ("ca", "cert", "key")] == [
        authority.pem, cert, key]


def test_a_key_of_another_certificate_is_refused(tmp_path, authority):
    """The board would be off the network, and say no more than that an alert came."""
    pairs = [authority.issue(name) for name in ("a", "b")]
    for n, pair in enumerate(pairs):
        for what, pem in zip(("cert", "key"), pair):
            (tmp_path / f"{what}{n}").write_bytes(pem)
    for n, right in ((0, True), (1, False)):
        data = {"broker": {"host": "h", "ca": "ca.pem", "cert": "cert0", "key": f"key{n}"}}
        path = tmp_path / "settings.json"
        path.write_text(settings_file.json.dumps(data))
        if right:
            assert settings_file.gather(path, {})["broker.key"] == pairs[0][1].decode()
        else:
            with pytest.raises(BoardError, match="broker.key: expected the key of broker.cert, "):
                settings_file.gather(path, {})


@pytest.mark.parametrize("rubbish", ["eA==", "no base 64!"])
def test_a_key_that_is_none_is_refused(tmp_path, authority, rubbish):
    """A file without armour is taken for DER: the board would say "invalid key" at each try."""
    (tmp_path / "cert").write_bytes(authority.issue("a")[0])
    armour = "-----{} PRIVATE KEY-----\n"
    (tmp_path / "key").write_text(armour.format("BEGIN") + rubbish + "\n" + armour.format("END"))
    path = tmp_path / "settings.json"
    data = {"broker": {"host": "h", "ca": "ca.pem", "cert": "cert", "key": "key"}}
    path.write_text(settings_file.json.dumps(data))
    with pytest.raises(BoardError, match="broker.key: expected a private key, got what is none"):
        settings_file.gather(path, {})


def test_a_key_named_by_the_environment_leaves_the_files_names_beside_the_file(
    tmp_path, authority, monkeypatch
):
    """A name in the environment is relative to where the program runs."""
    beside, here = tmp_path / "beside", tmp_path / "here"
    for folder in (beside, here):
        folder.mkdir()
    certificate, key = authority.issue("g/a")
    (beside / "cert.pem").write_bytes(certificate)
    (here / "key.pem").write_bytes(key)
    settings = beside / "settings.toml"
    (beside / "ca.pem").write_bytes(authority.pem)
    settings.write_text('[broker]\nhost = "h"\nca = "ca.pem"\ncert = "cert.pem"\nkey = "none"\n')
    settings.chmod(0o600)
    monkeypatch.chdir(here)
    flat = settings_file.gather(settings, {"UMQTT_BROKER_KEY": "key.pem"})
    assert (flat["broker.cert"], flat["broker.key"]) == (certificate.decode(), key.decode())


def test_whom_a_certificate_is_for(authority):
    for name in ("g/a", "bridge", "host.example", "n" * 64):
        assert subject.common_name("words\n" + authority.issue(name)[0].decode()) == name
    pem = authority.issue("g/a")[0].decode()
    assert subject.words(pem).startswith("the certificate 'g/a' ")
    assert subject.words(pem) != subject.words(authority.issue("g/a")[0].decode())
    assert subject.words("-----BEGIN x") == "a damaged certificate"
    for text in ("", "-----BEGIN CERTIFICATE-----\nnonsense", pem[:200], pem.replace("M", "A")):
        assert subject.common_name(text) == ""


def test_a_board_with_a_radio_needs_a_network():
    with pytest.raises(BoardError, match="wifi.ssid: expected the network to join"):
        settings_file.gather(GOOD, {}, wifi=True)
    given = settings_file.gather(GOOD, {"UMQTT_WIFI_SSID": "home"}, wifi=True)
    assert given == {"broker.host": "h", "wifi.ssid": "home"}
    assert settings_file.gather(GOOD, {}) == {"broker.host": "h"}


def test_only_what_is_missing_is_asked_for_and_secrets_as_secrets():
    asked = []

    def ask(key, text, secret):
        asked.append((key, secret))
        assert text
        return {"wifi.ssid": "home", "wifi.password": "password", "broker.host": "b"}[key]

    found = settings_file.gather({"wifi": {"password": "from file"}}, {}, wifi=True, ask=ask)
    assert found == {"wifi.ssid": "home", "wifi.password": "from file", "broker.host": "b"}
    assert asked == [("wifi.ssid", False), ("broker.host", False)]
    asked.clear()
    assert settings_file.changed(None, {}, ask=ask) == {"broker.host": "b"}
    settings_file.changed(None, {}, wifi=True, ask=ask)
    assert asked[1:] == [("wifi.ssid", False), ("wifi.password", True), ("broker.host", False)]
    assert settings_file.gather(None, {}, wifi=True, ask=ask) is None


def test_an_answer_that_is_wrong_is_an_error_like_any_other():
    with pytest.raises(BoardError, match="answers given:\n  wifi.password: expected 8 to 63"):
        settings_file.changed(None, {}, wifi=True, ask=lambda key, text, secret: "short")


def test_a_mistyped_key_is_told_before_anything_is_asked():
    def ask(key, text, secret):
        raise AssertionError(key)

    with pytest.raises(BoardError, match="broker.hots: unknown key; did you mean broker.host"):
        settings_file.gather({"broker": {"hots": "b"}}, {}, wifi=True, ask=ask)


@pytest.mark.parametrize("host", ["localhost:1883", "mqtt://b", "b/x", "two words"])
def test_an_address_with_more_than_a_name_is_refused(host):
    with pytest.raises(BoardError, match="broker.host: expected a name or an address alone"):
        settings_file.gather({"broker": {"host": host}}, {})


@pytest.mark.parametrize("host", ["b", "10.0.0.2", "fe80::1", "a.b-c.local"])
def test_a_name_or_an_address_is_taken(host):
    assert settings_file.gather({"broker": {"host": host}}, {})["broker.host"] == host


def test_what_the_environment_says_comes_on_top_of_what_the_board_has():
    there = settings_file.from_board(b'{"broker":{"host":"h"},"wifi.ssid":"s","window":4}')
    assert there == {"broker.host": "h", "wifi.ssid": "s", "window": 4}
    given = settings_file.from_environment({"UMQTT_WINDOW": "8", "UMQTT_DEVICE": "two"})
    assert settings_file.changed(there, given, wifi=True) == there | {"window": 8, "device": "two"}
    with pytest.raises(BoardError, match="on top of those that the board has:\n  wifi.ssid: exp"):
        settings_file.changed({"broker.host": "h"}, given, wifi=True)
    assert [settings_file.from_board(data) for data in (None, b"{", b"[]")] == [None] * 3


@pytest.mark.parametrize("file, kept", [
    ({"wifi.ssid": "s", "broker.host": "h", "broker.user": "u"}, ["w", "b"]),
    ({"wifi.ssid": "other", "broker.host": "h", "broker.user": "u"}, [None, "b"]),
    ({"wifi.ssid": "s", "broker.host": "elsewhere", "broker.user": "u"}, ["w", None]),
    ({"wifi.ssid": "s", "broker.host": "h"}, ["w", None]),
    ({"wifi.ssid": "s", "wifi.password": "", "broker.host": "h"}, ["", None]),
])  # fmt: skip
def test_a_password_stays_for_the_same_network_and_login(file, kept):
    there = {"wifi.ssid": "s", "wifi.password": "w", "broker.host": "h", "broker.user": "u",
             "broker.password": "b", "window": 3}  # fmt: skip
    found = settings_file.keep_secrets(file, there)
    assert [found.get(key) for key in ("wifi.password", "broker.password")] == kept
    assert "window" not in found and settings_file.keep_secrets(file, None) == file


@pytest.mark.parametrize("name, said", [
    ("UMQTT_BROKER_PASWORD", "UMQTT_BROKER_PASWORD: no setting; did you mean UMQTT_BROKER_PASSW"),
    ("UMQTT_SSID", "UMQTT_SSID: no setting; did you mean UMQTT_WIFI_SSID"),
    ("UMQTT_INTERVAL", "UMQTT_INTERVAL: no setting; did you mean UMQTT_INTERVAL_MS"),
])  # fmt: skip
def test_a_mistyped_variable_is_an_error_with_the_right_name(name, said):
    with pytest.raises(BoardError, match=said) as raised:
        settings_file.gather(GOOD, {name: "hunter2"})
    assert "hunter2" not in str(raised.value)


def test_a_variable_that_is_nothing_like_a_setting_is_told_and_the_pipelines_are_not():
    environment = {"UMQTT_BANANA": "1", "UMQTT_JDK": "pypi", "HOME": "/"}
    assert settings_file.gather(GOOD, environment) == {"broker.host": "h"}
    assert settings_file.unused(environment) == ["UMQTT_BANANA"]


@pytest.mark.parametrize("there, flat, said", [
    ({"update.key": "ab" * 32}, {}, "takes updates that nobody has signed"),
    ({"update.key": "ab" * 32}, {"update.key": "cd" * 32}, None),
    ({"marks": "signed"}, {"marks": "any"}, "marks is no longer"),
    ({"telemetry": "signed"}, {}, "telemetry is no longer"),
    ({"telemetry": "plain"}, {}, None), ({"broker.tls": True}, {"broker.tls": False}, "in clear"),
    ({"broker.tls": True}, None, None), (None, {"marks": "any"}, None),
])  # fmt: skip
def test_settings_that_protect_less_are_told(there, flat, said):
    found = settings_file.lowered(flat, there)
    assert len(found) == bool(said) and all(said in text for text in found)


def test_a_file_with_secrets_that_others_may_read_is_told(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('[broker]\nhost = "h"\nuser = "u"\npassword = "hidden-word"\n')
    file.chmod(0o640)
    said = settings_file.exposed(file)
    assert "holds broker.password and others may read it: `chmod 600" in said
    assert "hidden-word" not in said
    file.chmod(0o600)
    assert settings_file.exposed(file) is None
    file.write_text('[broker]\nhost = "h"\nkey = "keys/{device}-key.pem"\n')
    file.chmod(0o644)
    assert settings_file.exposed(file) is settings_file.exposed(None) is None
