"""Commands and updates over MQTT, and the keys that sign them."""
