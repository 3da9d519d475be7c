"""A Delta table as the target of a streaming query of one's own.

Knows foreachBatch and Delta's application transactions. Must not know what a row means. A batch
that is run again after a kill finds its own transaction in the table's log and adds nothing.

Each batch commits two transactions with its number: one of the application, and one of the query
as Spark knows it by its checkpoint. A query whose checkpoint was deleted counts from 0 again: its
batches are not those that the table has, though they have the numbers.
"""

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

QUERY = "sql.streaming.queryId"  #: where Spark keeps the query's id while it runs a batch


class OtherQuery(Exception):
    """The batches of this application in the table are of a query with another checkpoint."""


def writer(uri, application):
    """A function for `writeStream.foreachBatch` that appends each batch once.

    uri           folder or object store URI of the table, made when missing
    application   name of the query; another query that adds to the table has another one

    The function raises OtherQuery when the query's checkpoint is not the one that the application
    has had so far.
    """

    def append(df, batch):
        query = f"{application} {df.sparkSession.sparkContext.getLocalProperty(QUERY)}"
        last, own = _last(uri, application), _last(uri, query)
        if last >= 0 > own:
            raise OtherQuery(
                f"{uri} has batches of {application!r} up to {last}, of a query with another "
                f"checkpoint, and this one begins anew at {batch}: put that checkpoint back; or, "
                "to have all that the source holds once more, use another table, or another name "
                "for the application"
            )
        if last >= batch:
            return
        done = CommitProperties(
            app_transactions=[Transaction(name, batch) for name in (application, query)]
        )
        write_deltalake(uri, df.toArrow(), mode="append", schema_mode="merge",
                        commit_properties=done)  # fmt: skip

    return append


def _last(uri, application):
    try:
        version = DeltaTable(uri).transaction_version(application)
    except TableNotFoundError:
        return -1
    return -1 if version is None else version
