"""`python -m umqtt_pipeline`, and what spark-submit is given (README: on a cluster)."""

from umqtt_pipeline.cli import main

main()
