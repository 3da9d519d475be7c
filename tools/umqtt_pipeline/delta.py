"""Delta Lake as a target, through the `deltalake` package (extra: `pip install umqtt-min[delta]`).

Knows foreachBatch and Delta's application transactions. Must not know what a row means. A batch
that is run again after a kill finds its own transaction in the table's log and adds nothing.
"""

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError


def writer(uri, application):
    """A function for `writeStream.foreachBatch` that appends each batch once.

    uri           folder or object store URI of the table, made when missing
    application   name of the query; another query that adds to the table has another one
    """

    def append(df, batch):
        if _last(uri, application) >= batch:
            return
        done = CommitProperties(app_transactions=[Transaction(application, batch)])
        write_deltalake(uri, df.toArrow(), mode="append", schema_mode="merge",
                        commit_properties=done)  # fmt: skip

    return append


def _last(uri, application):
    try:
        version = DeltaTable(uri).transaction_version(application)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version
