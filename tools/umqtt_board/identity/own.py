"""Whether the client certificate in a board's settings is the board's own.

Knows the names that `umqtt-board identity` gives. Must not know where settings come from or go.
"""

from umqtt_board.errors import BoardError
from umqtt_board.identity import access
from umqtt_board.ota import keys
from umqtt_board.ota.giving import name_of
from umqtt_board.settings import ca_file, subject


def refuse_other(device, flat, confirm):
    """BoardError for settings `flat` with the certificate of another user of `umqtt-board
    identity`: the broker would take the board for that one. Names of another form are somebody
    else's, who knows what they mean.

    device   a device.Device; flat: the settings that it shall have, None for none
    confirm  function(text): whether to write them all the same
    """
    certificate = (flat or {}).get("broker.cert", "")
    named = subject.common_name(certificate) if ca_file.is_pem(certificate) else ""
    if not (keys.is_name(named) or named in (access.BRIDGE, access.OPERATOR)):
        return
    own = access.user(flat.get("group", "default"), name_of(device, flat))
    text = (f"broker.cert is the certificate of {named}, and this board is {own}: the broker "
            f"takes it for {named}")  # fmt: skip
    if named != own and not confirm(text):
        raise BoardError(
            f"Nothing was changed: {text}, and by the access lists it can deliver nothing. Give "
            f"broker.cert and broker.key the files of {own}: in settings.toml "
            "boards/{group}/{device}.pem and boards/{group}/{device}-key.pem are each board's "
            "own. Or give the board its right name. YES=1 (--yes) writes it all the same."
        )
