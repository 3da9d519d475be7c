"""What several attacks share: names of files that lead out of a folder, and what of all that was
published the pipeline takes for readings. Must not know who attacks."""

import pyarrow as pa
from umqtt_pipeline import wire
from umqtt_pipeline.decode import rows
from umqtt_pipeline.decode.signed import TelemetryKeys
from umqtt_pipeline.spool import reader as spooling


def strange(folder):
    """Names that lead out of a folder, or are no names of the firmware's, for one in `folder`."""
    return [
        f"/{folder}/absolute", "/mqtt/../../../dots", "/mqtt/../settings.json", "/mqtt/..",
        "/mqtt/", "C:\\drive", "/C:/drive", "/mqtt/0.0\0", "/MQTT/0.0", "/Settings.json",
        "/mqtt/000.LOG", "/mqtt/" + "9" * 300 + ".0", "/mqtt/\u0661.0", "/main.py", "mqtt/0.0",
        "//mqtt/0.0", "",
    ]  # fmt: skip


def spooled(folder):
    """[(topic, payload)] in the order in which the bridge made them durable."""
    found = []
    for _, body in spooling.walk(folder, spooling.begin(folder), spooling.durable(folder)):
        f = wire.frames(body)
        found += [(body[a:b].decode(), body[c:d])
                  for a, b, c, d in zip(f.topic, f.topic_end, f.payload, f.end)]  # fmt: skip
    return found


def decoded(folder, keys):
    """All that is in a spool as the pipeline reads it, a dict each; keys: file of the signers."""
    held = spooled(folder)
    table = pa.table({"topic": [t for t, _ in held], "payload": [p for _, p in held]},
                     schema=pa.schema([("topic", pa.string()), ("payload", pa.binary())]))
    return rows.decode(table, keys=TelemetryKeys(keys)).to_pylist()


def ordinals(found):
    """The sensor's own count of each reading among decoded(), once each, in order."""
    values = {(row["epoch"], row["sequence"]): {m["name"]: m["value"] for m in row["measurements"]}
              for row in found if row["reason"] is None}  # fmt: skip
    assert len({epoch for epoch, _ in values}) == 1
    return sorted(value["reading"] for value in values.values() if "reading" in value)
