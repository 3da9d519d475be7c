"""Starts the sensor. All that it does is in app.py."""

import app

app.main()
