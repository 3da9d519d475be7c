"""The process from which Spark forks its workers: what it does not print."""

import socket

import pytest
from umqtt_runtime import python_daemon


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_connection_that_java_has_closed_is_the_end_of_a_worker_without_a_word(error):
    here, _ = socket.socketpair()

    def worker(sock, authenticated):
        assert sock is here and authenticated
        raise error

    assert python_daemon._without_a_word(worker)(here, True) == 1


def test_what_a_worker_returns_and_raises_stays():
    def worker(code):
        if code > 5:
            raise ValueError("a fault of ours")
        return code

    quiet = python_daemon._without_a_word(worker)
    assert quiet(0) == 0 and quiet(3) == 3
    with pytest.raises(ValueError, match="of ours"):
        quiet(6)
