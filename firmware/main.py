"""Starts the sensor. Which files it runs is in loader.py, all that they do in app.py."""

import loader


def program():
    """Import what the set in force has, only now: a crash of the import is one of that set."""
    import app

    app.main()


loader.run(program)
