"""Streams to MQTT packets."""
