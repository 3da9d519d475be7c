"""A signal's handler is the command's, also while pyspark makes its context in the main thread."""

import signal

from umqtt_runtime import session


def test_nobody_else_puts_a_handler_while_the_session_is_made(monkeypatch):
    seen = []

    class Builder:
        """SparkSession.builder, of which getOrCreate() puts a handler as pyspark's does."""

        def config(self, *_):
            return self

        def getOrCreate(self):  # noqa: N802  (the name is pyspark's)
            from pyspark.core import context

            context.signal.signal(signal.SIGINT, signal.default_int_handler)
            seen.append(signal.getsignal(signal.SIGINT))
            raise InterruptedError

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    if SparkContext._gateway is None:  # a Spark of another test may still have events to deliver
        monkeypatch.setattr(SparkContext, "_gateway", object())
    before = signal.signal(signal.SIGINT, ours)
    try:
        try:
            session.session()
        except InterruptedError:
            pass
        assert seen == [ours] and signal.getsignal(signal.SIGINT) is ours
        signal.signal(signal.SIGINT, before)  # whoever wants one now has it
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


def ours(*_):
    """A handler."""
