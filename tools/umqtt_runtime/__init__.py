"""What the commands that start Spark share: Java, the session, progress, failures, how they end.

Used by umqtt_pipeline and mqtt_audit. Must not know MQTT, spools or tables.
"""
