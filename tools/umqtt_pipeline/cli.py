"""`umqtt-pipeline`. Must not know any command (commands/)."""

from umqtt_runtime import program

SERVICES = ("bridge", "ingest")  #: run until they are told to end, which is no failure


def _commands():
    from .commands import main

    return main


def main():
    """Run the command that the arguments name; ends the process."""
    program.main("umqtt-pipeline", _commands, SERVICES)
