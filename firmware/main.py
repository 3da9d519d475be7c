"""Starts the sensor. Which files it runs is in loader.py, all that they do in app.py."""

import loader

loader.run()
