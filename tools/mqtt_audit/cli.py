"""`mqtt-audit`. Must not know what an audit does (commands.py)."""

from umqtt_runtime import program


def _commands():
    from .commands import audit

    return audit


def main():
    """Audit the captures that the arguments name; ends the process."""
    program.main("mqtt-audit", _commands)
