"""TLS, as far as it is told in the clear: what the first message of either side says."""
