"""`umqtt-board` and `python -m umqtt_board`: see cli.py."""

import sys


def main():
    """Entry point, which takes Ctrl-C while the rest is imported, too."""
    try:
        from umqtt_board import cli
    except KeyboardInterrupt:
        print("umqtt-board: stopped", file=sys.stderr)
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
