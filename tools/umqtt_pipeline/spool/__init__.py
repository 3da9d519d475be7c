"""The durable log between bridge and Spark: files, reader, writer, recovery. Imports no Spark."""
