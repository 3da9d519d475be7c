"""`python -m umqtt_board`: see cli.py."""

from umqtt_board.cli import main

main()
