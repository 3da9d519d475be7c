"""`python -m umqtt_pipeline`, and what spark-submit is given (CLUSTER.md)."""

from umqtt_pipeline.cli import main

main()
