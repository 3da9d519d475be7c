"""`python -m umqtt_demo`. Knows nothing but where the command line is."""

from .cli import main

main(prog_name="python -m umqtt_demo")
