"""What the command line is given: types of options that say what is wrong; the file of options.

Knows click and the shapes of values. Must not know what a command does with them.
"""

import math
import os
import re
import sys
import tomllib
from pathlib import Path

import click
from umqtt_runtime.options import paired

LONGEST_PACKET = 268_435_460  #: bytes, its fixed header included [MQTT 2.2.3]


class Seconds(click.FloatRange):
    """A number of seconds in a range: "nan", which is in every range for click, is none."""

    def convert(self, value, param, ctx):
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class OutputFile(click.Path):
    """A file to be written: it is in a folder that exists, which a typing error is not. What is
    there already is a file: it is replaced, which a device or a pipe must not be."""

    def __init__(self):
        super().__init__(dir_okay=False)

    def convert(self, value, param, ctx):
        if not Path(value).absolute().parent.is_dir():
            self.fail(f"{value}: its folder does not exist", param, ctx)
        if Path(value).exists() and not Path(value).is_file():
            self.fail(f"{value} is no regular file, and would be replaced by one: name a file",
                      param, ctx)  # fmt: skip
        return super().convert(value, param, ctx)


def spark_can_name(path):
    """Whether Spark, whose names are text, can be told of a path: of bytes that are no UTF-8 it
    cannot. Everything else goes, with tables.reader."""
    try:
        return bool(os.path.abspath(path).encode())
    except UnicodeEncodeError:
        return False


def delta_can_name(path):
    """Whether Delta Lake takes a path for what it is: it reads backslashes as slashes, and decodes
    what looks like the %XX of an address."""
    name = os.path.abspath(path)
    return not re.search(r"[\\\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}", name)


class TablesHere(click.Path):
    """A folder of tables that exists, or s3://BUCKET/PREFIX."""

    def __init__(self):
        super().__init__(exists=True, file_okay=False)

    def convert(self, value, param, ctx):
        if "://" in value:
            return _object_store(self, value, param, ctx)
        _has_text_name(self, value, param, ctx)
        _has_name_for_delta(self, value, param, ctx)
        return super().convert(value, param, ctx)


class SpoolsHere(click.Path):
    """The folders of spools that exist, or s3://BUCKET/PREFIX, separated by commas: a list."""

    def __init__(self):
        super().__init__(exists=True, file_okay=False)

    def convert(self, value, param, ctx):
        return [self._convert_one(each.strip(), param, ctx) for each in value.split(",")]

    def _convert_one(self, value, param, ctx):
        if "://" in value:
            return _object_store(self, value, param, ctx)
        return super().convert(value, param, ctx)


class ObjectPlace(click.ParamType):
    """s3://BUCKET/PREFIX."""

    name = "place"

    def convert(self, value, param, ctx):
        if "://" not in value:
            self.fail(f"{value} is no place in an object store: write s3://BUCKET/PREFIX", param,
                      ctx)  # fmt: skip
        return _object_store(self, value, param, ctx)


class PeerPlace(click.Path):
    """A folder, which may not be there yet, or s3://BUCKET/PREFIX."""

    def __init__(self):
        super().__init__(file_okay=False)

    def convert(self, value, param, ctx):
        if "://" in value:
            return _object_store(self, value, param, ctx)
        return super().convert(value, param, ctx)


def _object_store(of, value, param, ctx):
    """A place in an object store, of which the environment says where it is."""
    from .spool.objects import IN_PLACE, PLACE

    if not value.startswith("s3://"):
        of.fail(f"{value}: only s3:// is spoken here; write a folder or s3://BUCKET/PREFIX",
                param, ctx)  # fmt: skip
    if not PLACE.fullmatch(value):
        of.fail(f"{value}: write s3://BUCKET/PREFIX, {IN_PLACE}", param, ctx)
    return value.rstrip("/")


def _has_name_for_delta(of, value, param, ctx):
    if not delta_can_name(value):
        of.fail(f"{value!r}: Delta Lake cannot use a name with a backslash, a control character "
                "or %XX in it: rename the folder", param, ctx)  # fmt: skip


def _has_text_name(of, value, param, ctx):
    if not spark_can_name(value):
        of.fail(f"{value!r}: Spark cannot use a name that is not UTF-8: rename the folder",
                param, ctx)  # fmt: skip


class Folder(click.Path):
    """A folder, to be made if need be. other: what is in a folder of another kind; kind: that."""

    def __init__(self, other, kind):
        super().__init__(file_okay=False)
        self.other, self.kind = other, kind

    def convert(self, value, param, ctx):
        if not value:
            self.fail("the name of the folder is empty", param, ctx)
        if "://" in value:
            self.fail(f"{value} is no folder on a disk: name one", param, ctx)
        _has_text_name(self, value, param, ctx)
        for folder in (Path(value), *Path(value).parents):
            if folder.exists() and not folder.is_dir():
                self.fail(f"{folder} is no folder: name another one", param, ctx)
        if Path(value, self.other).exists():
            self.fail(f"{value} is the folder of {self.kind}: name another one", param, ctx)
        return super().convert(value, param, ctx)


class SpoolFolder(Folder):
    """The folder of a spool, to be made if need be. Ingest takes a list of them with commas."""

    def __init__(self):
        super().__init__("_state", "tables")

    def convert(self, value, param, ctx):
        if "," in value:
            self.fail(f"{value}: the name of a spool has no comma, because commas separate spools",
                      param, ctx)  # fmt: skip
        if "://" in value:
            self.fail(f"{value} is no folder: a spool is on a disk, and a bridge ships it to an "
                      "object store with --ship", param, ctx)  # fmt: skip
        return super().convert(value, param, ctx)


class TablesFolder(Folder):
    """The folder of tables, to be made if need be, or s3://BUCKET/PREFIX."""

    def __init__(self):
        super().__init__("spool.json", "a spool")

    def convert(self, value, param, ctx):
        if "://" in value:
            return _object_store(self, value, param, ctx)
        _has_name_for_delta(self, value, param, ctx)
        return super().convert(value, param, ctx)


SCHEMES = {"mqtt": 1883, "mqtts": 8883}


def address(_, __, value):
    """Callback: HOST:PORT, mqtt://HOST[:PORT] or mqtts://HOST[:PORT] -> (host, port, TLS)."""
    scheme, separator, rest = value.rpartition("://")
    default = SCHEMES.get(scheme.lower())
    if separator and default is None:
        raise click.BadParameter(f"{scheme}:// is not spoken here; write HOST:PORT, mqtt://HOST "
                                 "or mqtts://HOST")  # fmt: skip
    if "@" in rest:  # not shown: there may be a password in it
        raise click.BadParameter("a user is given by --username, the password by "
                                 "UMQTT_BROKER_PASSWORD; write HOST:PORT")  # fmt: skip
    if default is not None:
        rest = rest.removesuffix("/")
        if not re.search(r":[0-9]*$", rest.rpartition("]")[2]):
            rest += f":{default}"
    return *_host_and_port(value, rest), scheme.lower() == "mqtts"


def _host_and_port(value, rest):
    host, _, port = rest.rpartition(":")
    host = host.strip("[]")
    try:
        host.encode("idna")
    except UnicodeError:  # an empty label, one of more than 63 letters, bytes that are no text
        raise click.BadParameter(f"{value[:80]!r}: there can be no host of that name")
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host or "/" in host or not 0 < number < 65_536:
        raise click.BadParameter(f"{value!r} is not HOST:PORT, for example localhost:1883")
    return host, number


def mqtt_string(_, __, value):
    """Callback: what CONNECT can say [MQTT 3.1.1, 1.5.3]; the message does not show it, since it
    may be a password, and may be long."""
    if value is None:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise click.BadParameter("it is not UTF-8 [MQTT-1.5.3-1]")
    if size > 65_535:
        raise click.BadParameter(f"it has {size} bytes; MQTT takes 65,535 [section 1.5.3]")
    if "\0" in value:
        raise click.BadParameter("it has the character U+0000 [MQTT-1.5.3-2]")
    return value


def topic_filters(_, __, value):
    """Callback: topic filters [MQTT 3.1.1, 4.7], shared ones as in [MQTT 5.0, 4.8.2]."""
    for topic in value:
        mqtt_string(_, __, topic)
        levels = topic.split("/")
        bad_hash = any("#" in level and (level != "#" or i != len(levels) - 1)
                       for i, level in enumerate(levels))  # fmt: skip
        if not topic or bad_hash or any("+" in level and level != "+" for level in levels):
            raise click.BadParameter(f"{topic!r} is not a topic filter")
        if levels[0] == "$share" and not re.fullmatch(r"\$share/[^/+#]+/.+", topic, re.DOTALL):
            raise click.BadParameter(f"{topic!r}: a shared subscription is $share/GROUP/FILTER")
    return value


def one_topic_filter(context, option, value):
    """Callback: a topic filter, or None."""
    return value if value is None else topic_filters(context, option, (value,))[0]


def pairs(_, __, value):
    """Callback: KEY=VALUE, several times -> dict."""
    return paired(value, "", "KEY=VALUE")


def days_by_table(_, __, value):
    """Callback: TABLE=DAYS, several times -> {table: days}."""
    from .tables.schema import ALL

    told = paired(value, "", "TABLE=DAYS")
    for name, days in told.items():
        if name not in ALL:
            raise click.BadParameter(f"{name!r} is none of {', '.join(ALL)}")
        if not re.fullmatch("[0-9]{1,5}", days) or not int(days):
            raise click.BadParameter(f"{name}={days}: a number of days, 1 to 99999")
    return {name: int(days) for name, days in told.items()}


def decoders(_, __, value):
    """Callback: MODULE:NAME, several times -> Decoders; modules are looked for in the current
    folder, too, also by Spark's Python workers."""
    from umqtt_runtime import failures

    from .decode.own import Decoders, load

    found, here = [], str(Path.cwd())
    if value and here not in sys.path:
        sys.path.insert(0, here)
        told = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, told)))
    for name in value:
        try:
            found.append(load(name))
        except (Exception, SystemExit) as error:  # a module of the user's own may raise anything
            module = name.partition(":")[0]
            if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(
                    f"{error.name}."):  # fmt: skip
                raise click.BadParameter(f"{name!r}: there is no module {error.name} in the "
                                         f"current folder {here}, nor is one installed")
            raise click.BadParameter(f"{name!r}: {failures.raised_at(error)}")
    return Decoders(tuple(found))


def telemetry_keys(_, __, value):
    """Callback: a file -> TelemetryKeys."""
    from .decode.signed import TelemetryKeys

    try:
        return TelemetryKeys(value)
    except ValueError as error:
        raise click.BadParameter(str(error))


def configured(main):
    """Callback for --config FILE.toml: defaults of all commands of the group that `main()` gives:
    a table for each command, a key for an option."""

    def callback(context, _, value):
        if value is None:
            return
        try:
            told = tomllib.loads(Path(value).read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise click.BadParameter(f"{value}: {error}")
        context.default_map = {}
        for name, options in told.items():
            command = main().commands.get(name)
            if command is None or not isinstance(options, dict):
                raise click.BadParameter(f"{value}: [{name}] is no command")
            context.default_map[name] = _defaults(f"{value}: [{name}]", command, options)

    return callback


def _defaults(where, command, options):
    """{parameter: value} of a command's table, each value of the kind that its option takes."""
    known = {p.opts[-1].lstrip("-"): p for p in command.params}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise click.BadParameter(f"{where} has no option {', '.join(unknown)}")
    for key, given in options.items():
        kind, many = _kind(known[key]), known[key].multiple or known[key].nargs == -1
        values = given if many and isinstance(given, list) else [given]
        if many and not isinstance(given, list) or not all(_is(kind, one) for one in values):
            wanted = f"a list of {kind.split()[-1]}s" if many else kind
            raise click.BadParameter(f"{where} {key} = {given!r} is not {wanted}")
    return {known[key].name: given for key, given in options.items()}


KINDS = {"true or false": bool, "an integer": int, "a number": (int, float), "a text": str}


def _kind(option):
    """Which of KINDS an option takes."""
    if getattr(option, "is_flag", False):
        return "true or false"
    if isinstance(option.type, click.types.IntParamType):
        return "an integer"
    return "a number" if isinstance(option.type, click.types.FloatParamType) else "a text"


def _is(kind, value):
    return isinstance(value, KINDS[kind]) and isinstance(value, bool) == (KINDS[kind] is bool)
