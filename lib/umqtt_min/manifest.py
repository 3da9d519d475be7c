# For freezing the library into a firmware image: include(".../lib/umqtt_min") in the board's
# manifest. Knows: what package.json lists, so that there is one list. Run by MicroPython's
# makemanifest.py on the host, in this folder; it is no part of the package.
# ruff: noqa: F821  (metadata and package are makemanifest's)
import json

with open("package.json") as f:
    _package = json.load(f)

metadata(version=_package["version"], description="An MQTT client that loses nothing")
package("umqtt_min", files=[name.split("/", 1)[1] for name, _ in _package["urls"]], base_path="..")
