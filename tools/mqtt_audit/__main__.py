"""`python -m mqtt_audit`."""

from mqtt_audit.cli import main

main()
