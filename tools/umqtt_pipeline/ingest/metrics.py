"""What Spark says of the query's batches, as JSON lines beside the tables, for the report.

Knows StreamingQueryListener. Must not know what a row means. One line a batch that had rows:
{"time", "batch", "rows", "seconds", "rows_per_second", "parts": {step: ms}}.
The file is begun anew when it reaches LIMIT bytes; the old one is kept once.
"""

import json
import os
from pathlib import Path

from pyspark.sql.streaming import StreamingQueryListener

LIMIT = 8 << 20


def path(root):
    """The file for the tables below `root`."""
    return Path(root, "_metrics", "batches.jsonl")


class Progress(StreamingQueryListener):
    """Appends each progress of the query called `name`; add it with spark.streams.addListener."""

    def __init__(self, root, name):
        self.file, self.name = path(root), name
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def onQueryStarted(self, event):  # noqa: N802 (the API's name)
        pass

    def onQueryIdle(self, event):  # noqa: N802
        pass

    def onQueryTerminated(self, event):  # noqa: N802
        pass

    def onQueryProgress(self, event):  # noqa: N802
        progress = event.progress
        if progress.name != self.name or not progress.numInputRows:
            return
        parts = dict(progress.durationMs)
        seconds = parts.get("triggerExecution", 0) / 1000
        line = {"time": progress.timestamp, "batch": progress.batchId,
                "rows": progress.numInputRows, "seconds": seconds,
                "rows_per_second": round(progress.numInputRows / seconds, 1) if seconds else None,
                "parts": parts}  # fmt: skip
        if self.file.exists() and self.file.stat().st_size > LIMIT:
            os.replace(self.file, self.file.with_suffix(".old"))
        with open(self.file, "a") as out:
            out.write(json.dumps(line) + "\n")


def read(root):
    """The lines of the file as dicts, oldest first; none if there is no file. A last line that a
    kill cut off is left out."""
    try:
        text = path(root).read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]
