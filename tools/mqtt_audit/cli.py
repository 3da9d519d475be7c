"""`mqtt-audit`. Must not know what an audit does (commands.py)."""

import sys

from umqtt_runtime import program


def _commands():
    from .commands import audit, live, warm_up

    return {"live": live, "warm-up": warm_up}.get("".join(sys.argv[1:2]), audit)


def main():
    """Audit the captures that the arguments name, or follow an interface; ends the process."""
    program.main("mqtt-audit", _commands, services=("live",))
