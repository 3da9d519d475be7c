"""`format("mqtt")`: PySpark reads spools, as a stream or as a batch."""
