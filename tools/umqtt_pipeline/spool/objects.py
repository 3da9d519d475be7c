"""Objects of a store, which is `s3://BUCKET/PREFIX`: how a client of it is made.

Knows the package `obstore`, and nothing heavier: a bridge uses it, too. Must not know logs or
tables. Where the store is and who may use it is told by the environment, as for every tool of AWS:
AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.

A put is whole or not there, and durable when it is answered.
"""

import errno
import os
import re
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache

from umqtt_runtime import failures

PLACE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w.=-]+)*/?", re.ASCII)
IN_PLACE = ("with 3 to 63 small letters, digits, - and . in BUCKET, which begins and ends with a "
            "letter or a digit, and letters, digits and . _ = - in PREFIX")  #: in words
#: how a store has answered that will not answer otherwise the next time
REFUSED = re.compile(r"PermissionDenied|Unauthenticated|status code: 4(?!08|29)\d\d")
#: Who is asked for keys if the environment has none: a service that only machines of a cloud have.
ASKED = "169.254.169.254"
NO_KEYS = "; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and nobody here gives others"
RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}


class Unreachable(OSError):
    """The object store does not answer, or does not let us in."""


def is_place(where):
    """Whether a place is in an object store, and not a folder."""
    return str(where).startswith("s3://")


def store(root):
    """The client for what lies below `root`. Raises ImportError without the package obstore."""
    return _store(str(root).rstrip("/"), os.getpid())


@lru_cache(maxsize=64)
def _store(root, process):
    """Not one of the process that this one was forked from."""
    from obstore.store import from_url

    return from_url(root, client_options={"allow_http": allow_http()}, retry_config=RETRIES)


def allow_http():
    """Whether the environment names an endpoint without TLS."""
    return os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")


def unreachable(error, root):
    """The Unreachable that tells what a client has raised, in one line. Its errno is EACCES if
    trying again will not help."""
    said = f"{type(error).__name__}: {error}"
    final = isinstance(error, (ImportError, PermissionError)) or REFUSED.search(said)
    why = failures.plain(error).partition(": <?xml")[0]
    keys = NO_KEYS if ASKED in said and not os.environ.get("AWS_ACCESS_KEY_ID") else ""
    told = f"the object store cannot be used: {why}{keys}"
    return Unreachable(errno.EACCES if final else errno.EAGAIN, told, str(root))


class Object:
    """One small object, used as a `Path` is: `read_text`, `stem`. folder: the place that it is
    below;   name: its own, words separated by slashes"""

    def __init__(self, folder, name):
        self.folder, self.name = str(folder), name

    def __str__(self):
        return f"{self.folder}/{self.name}"

    @property
    def stem(self):
        return self.name.rpartition("/")[2].rpartition(".")[0]

    def read_text(self):
        """Its text. Raises FileNotFoundError, Unreachable, ValueError for what is no text."""
        return read(self.folder, self.name).decode()

    def write(self, data):
        """Replace it by `data` (bytes). Raises Unreachable."""
        with told(self.folder):
            store(self.folder).put(self.name, data)


@contextmanager
def told(root):
    """Raises Unreachable for whatever a client raises in here, but FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, Unreachable):
        raise
    except Exception as error:  # of the store, of the network, for want of obstore
        raise unreachable(error, root)


def read(root, name):
    """All bytes of an object. Raises FileNotFoundError, Unreachable."""
    with told(root):
        return bytes(store(root).get(name).bytes())


def create(root, name, data):
    """Put an object unless there is one of that name; returns whether it was put. Raises
    Unreachable."""
    from obstore.exceptions import AlreadyExistsError

    with told(root):
        try:
            store(root).put(name, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
    return True


def listed(root, prefix):
    """[(name, bytes)] of the objects below `prefix`, in the order of their names. Raises
    Unreachable."""
    with told(root):
        pages = store(root).list(prefix, chunk_size=1000)
        return sorted((each["path"], each["size"]) for page in pages for each in page)


def below(root):
    """The names directly below `root` that have objects below them. Raises Unreachable."""
    with told(root):
        found = store(root).list_with_delimiter()["common_prefixes"]
        return sorted(str(name).strip("/") for name in found)


def remove(root, names):
    """Remove objects; one that is gone will do. Raises Unreachable."""
    if names:
        with told(root):
            store(root).delete(names)
