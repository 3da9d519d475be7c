"""From a broker to the spool: the bridge, its connection, its marks. Never imports Spark."""
