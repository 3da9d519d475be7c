"""Whether the client certificate in a board's settings is the board's own, and there at all.

Knows the names that `umqtt-board identity` gives. Must not know where settings come from or go.
"""

from contextlib import suppress

from umqtt_board.errors import BoardError
from umqtt_board.flash import install
from umqtt_board.identity import access
from umqtt_board.ota import keys
from umqtt_board.ota.giving import name_of
from umqtt_board.port.device import DeviceError
from umqtt_board.settings import ca_file, subject


def on_board(device, flat):
    """{path: bytes} of the certificates and the key that the settings `flat` name on a board, a
    device.Device, as far as they are there."""
    found = {}
    for path in ca_file.on_board(flat):
        device.doing = f"reading {path}"
        with suppress(DeviceError):  # a folder, which is no file: see missing()
            found[path] = device.read_file(path)
    return {path: data for path, data in found.items() if data is not None}


def doubt(device, flat, files):
    """What is to be asked of settings `flat` with the certificate of another user of `umqtt-board
    identity`: (what would happen, what to do). The broker would take the board for that one. None
    if there is nothing to ask. Names of another form are somebody else's, who knows what they
    mean.

    device   a device.Device; flat: the settings that it shall have, None for none
    files    on_board() of them
    """
    certificate = ca_file.text_of("broker.cert", flat or {}, files)
    named = subject.common_name(certificate) if ca_file.is_pem(certificate) else ""
    if not (keys.is_name(named) or named in (access.BRIDGE, access.OPERATOR)):
        return None
    own = access.user(flat.get("group", "default"), name_of(device, flat))
    if named == own:
        return None
    return (f"broker.cert is the certificate of {named}, and this board is {own}: the broker "
            f"takes it for {named}, and by the access lists it can deliver nothing",
            f"Give broker.cert and broker.key the files of {own}: in settings.toml "
            "boards/{group}/{device}.pem and boards/{group}/{device}-key.pem are each board's "
            "own. Or give the board its right name. YES=1 (--yes) writes it all the same")


def missing(device, flat):
    """Which certificates and key the settings `flat` name that are no files on the board, in
    words; "" if there are none."""
    named = ca_file.on_board(flat)
    there = install.hashes(device, [*named]) if named else {}
    found = [f"{named[path]} = {path}" for path, sum_ in there.items() if not sum_]
    return f"neither this computer nor the board has a file {', '.join(found)}" if found else ""


def refuse_missing(device, flat, confirm):
    """BoardError if something is missing() and that was not confirmed."""
    text = missing(device, flat or {})
    if text and not confirm(text):
        raise BoardError(f"Nothing was changed: {text}. Give the right name; or YES=1 (--yes) "
                         "writes it, for a file that comes onto the board later.")  # fmt: skip


def refuse_unfit(device, flat, confirm):
    """BoardError if a certificate or the key that the settings `flat` name on the board is none,
    or not the board's own, and that was not confirmed."""
    files = on_board(device, flat or {})
    text = "; ".join(ca_file.faults(flat or {}, files)) if files else ""
    if text and not confirm(text):
        raise BoardError(f"Nothing was changed: {text}. Put the right file there (`mpremote cp`), "
                         "or give the name of one; YES=1 (--yes) writes the settings all the "
                         "same.")  # fmt: skip
    found = doubt(device, flat, files)
    if found and not confirm(found[0]):
        raise BoardError(f"Nothing was changed: {found[0]}. {found[1]}.")
