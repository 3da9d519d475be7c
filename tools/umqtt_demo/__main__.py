"""`python -m umqtt_demo`. Knows where the command line is, and which extra it needs."""

import sys

try:
    from .cli import main

    main(prog_name="python -m umqtt_demo")
except ModuleNotFoundError as error:
    if error.name.startswith("umqtt_"):
        raise
    print(f"python -m umqtt_demo: {error.name} is not installed, which the demonstration needs: "
          "pip install '.[demo]' in the project's folder", file=sys.stderr)  # fmt: skip
    sys.exit(2)
