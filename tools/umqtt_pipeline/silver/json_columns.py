"""JSON payloads to readings by Spark's own functions, inside the JVM: SenML (RFC 8428) and flat.

Knows JSON and what makes a reading good. Must not know topics or files.
"""

from pyspark.sql import functions as F

from ..decode import payloads, reasons


def first_error(*checks):
    """The text of the first (condition that must hold, text) that does not hold, or null."""
    chain = None
    for condition, text in checks:
        failed = ~F.coalesce(condition, F.lit(False))
        text = F.lit(text) if isinstance(text, str) else text
        chain = F.when(failed, text) if chain is None else chain.when(failed, text)
    return chain


def _with(name, wording):
    """A wording of decode/reasons.py that takes a name, with a column for it."""
    return F.concat(F.lit(wording[0]), name, F.lit(wording[1]))


def finite(value):
    """bool column: whether a double is there, and finite."""
    return F.coalesce(~F.isnan(value) & (F.abs(value) < F.lit(float("inf"))), F.lit(False))


def _checked(device, fields, given, measurements, first_checks, names, units=()):
    """DECODED of JSON's parts; fields: {ep, sq, bo, up, ms, lo: column}; given: of those that may
    be missing, as text; names: what the payload calls them, in the order of fields; units: checks
    of the measurements' units. The order of the checks is that of decode/payloads.py."""
    said = {key: text.format(**dict(zip(("ep", "sq", "bo", "up", "ms", "lo"), names)))
            for key, text in reasons.FIELDS.items()}  # fmt: skip
    ms = F.coalesce(fields["ms"], F.lit(0))
    wrong = F.get(F.filter(measurements, lambda m: ~finite(m["value"])), 0)["name"]
    limit, bits = reasons.LIMIT - 1, reasons.BITS_31
    error = first_error(
        *first_checks,
        (F.forall(measurements, lambda m: F.length(m["name"]) > 0), reasons.NO_NAME),
        *units,
        (F.forall(measurements, lambda m: finite(m["value"])), _with(wrong, reasons.NUMBER)),
        (fields["sq"].between(1, limit), said["sq"]),
        (given["lo"].isNull() | fields["lo"].between(1, limit), said["lo"]),
        (F.coalesce(fields["lo"], F.lit(1)) <= fields["sq"], said["lo above"]),
        (fields["ep"].rlike("^[0-9A-Fa-f]{16}\\z"), said["ep"]),
        (fields["bo"].between(0, bits), said["bo"]),
        (fields["up"].between(0, bits), said["up"]),
        ((given["ms"].isNull() | fields["ms"].isNotNull()) & ms.between(0, 999), said["ms"]),
        (F.size(measurements) > 0, reasons.NO_MEASUREMENT),
    )
    uptime = F.try_add(F.try_multiply(fields["up"], F.lit(1000)), ms)
    return F.struct(
        device.alias("device"), F.lower(fields["ep"]).alias("epoch"),
        fields["sq"].alias("sequence"), fields["bo"].try_cast("int").alias("boot"),
        uptime.alias("uptime_ms"), fields["lo"].alias("low"),
        measurements.alias("measurements"), error.alias("error"),
    )  # fmt: skip


def _once(names, known):
    """Whether none of the known names comes twice among the names of an object: RFC 8259 section
    4 leaves it open which of the two is meant."""
    found = F.filter(names, lambda name: name.isin(*known))
    return F.size(found) == F.size(F.array_distinct(found))


def _integer(text):
    """Column of an integer's text -> bigint, null if it is written in any other way."""
    number = text.try_cast("bigint")
    return F.when(number.cast("string") == text, number)


# What Spark would take beyond RFC 8259.
STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
# from_json() makes text of whatever stands where text should; a variant tells what it was.
SENML = (
    "array<struct<bn:string,bver:variant,ep:variant,sq:bigint,bo:bigint,up:bigint,ms:bigint,lo:bigint,"
    "n:variant,u:variant,v:double>>"
)


def _is(value, kind):
    return F.coalesce(F.schema_of_variant(value) == kind, F.lit(False))


def _text(value):
    """The text that a variant is; null for any other value."""
    return F.when(_is(value, "STRING"), F.try_variant_get(value, "$", "string"))


def _given(value):
    """Whether a variant is there, and not JSON's null."""
    return value.isNotNull() & ~_is(value, "VOID")


def _in_a_value(text, schema, array):
    """What _alone() needs of a JSON text, an array or an object: from_json() by itself would read
    the first of several values and forget the others. Inside a value of the other kind there is
    no end that it could stop at."""
    if array:
        return F.from_json(F.concat(F.lit('{"":'), text, F.lit("}")), f"map<string,{schema}>",
                           STRICT)  # fmt: skip
    return F.from_json(F.concat(F.lit("["), text, F.lit("]")), f"array<{schema}>", STRICT)


def _alone(found, array):
    """The JSON value that a text is; null where it is none, or more than one."""
    value = F.get(F.map_values(found), 0) if array else F.get(found, 0)
    return F.when(F.size(found) == 1, value)


NOT_UTF8, HALF = "not UTF-8", "half of a surrogate pair: not UTF-8"


def _utf8(text):
    """Checks that all of a text is kept as it is: from_json() makes U+FFFD of bytes that are no
    UTF-8, and a question mark of an escape for half of a UTF-16 pair [RFC 8259 section 8.2]."""
    whole = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rest = F.regexp_replace(text, whole, "_")  # without escaped backslashes and whole pairs
    half = F.contains(text, F.lit("\\u")) & rest.rlike(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
    return (F.is_valid_utf8(text), NOT_UTF8), (~half, HALF)


def _not_taken(name, value):
    """Whether a field of SenML says what is not taken from it here (decoders.NOT_TAKEN)."""
    ours = name.isin(*payloads.NOT_TAKEN) | name.endswith(payloads.MUST_BE_KNOWN)
    return ours & value.isNotNull()


class Steps:
    """Columns that are worked out in steps, each of them once in a row.

    A column is an expression, and one that stands in others is worked out in each of them: Spark
    sees that they are the same only outside of conditions and lambdas. What is kept by a step has
    a name, and Spark does not put the expression back in the place of the name where it would be
    worked out twice.

    made: lists of columns; those of a list are made of the ones before.
    """

    def __init__(self, prefix):
        self.prefix, self.made = prefix, []

    def keep(self, **columns):
        """Add a step; returns the columns under their names, in the order given."""
        self.made.append([c.alias(self.prefix + name) for name, c in columns.items()])
        return [F.col(self.prefix + name) for name in columns]


def senml_json(text):
    """Column of SenML JSON text, or null -> (Steps, column DECODED made of theirs)."""
    steps = Steps("_senml_")
    found, raw = steps.keep(
        found=_in_a_value(text, SENML, array=True),
        raw=F.from_json(text, "array<map<string,string>>", STRICT),
    )
    pack, given = steps.keep(pack=_alone(found, array=True), given=F.get(raw, 0))
    first = F.get(pack, 0)
    valued = F.try_element_at(given, F.lit("v")).isNotNull()  # a number or not
    records = F.filter(pack, lambda r, i: (i > 0) | _given(r["n"]) | valued)
    values, foreign, wrong, epoch, *text_of = steps.keep(
        values=F.transform(records, lambda r: F.struct(
            _text(r["n"]).alias("name"), _text(r["u"]).alias("unit"), r["v"].alias("value"))),
        foreign=F.get(F.flatten(F.transform(raw, lambda r: F.coalesce(
            F.map_keys(F.map_filter(r, _not_taken)), F.array().cast("array<string>")))), 0),
        wrong=F.get(F.transform(F.filter(records, lambda r: _given(r["u"]) & _text(
            r["u"]).isNull()), lambda r: F.coalesce(_text(r["n"]), F.lit(""))), 0),
        ep=_text(first["ep"]),
        ms=F.try_element_at(given, F.lit("ms")), lo=F.try_element_at(given, F.lit("lo")),
    )  # fmt: skip
    once = F.forall(raw, lambda r: F.size(F.map_keys(r)) == F.size(
        F.array_distinct(F.map_keys(r))))  # fmt: skip
    # Another reading in the same pack would be taken for measurements of the first.
    own = F.array(*map(F.lit, payloads.OWN_LABELS))
    later = F.exists(F.slice(raw, 2, F.greatest(F.size(raw), F.lit(1))), lambda r: F.coalesce(
        F.arrays_overlap(F.map_keys(r), own), F.lit(False)) | F.coalesce(
        F.try_element_at(r, F.lit("bn")) != first["bn"], F.lit(False)))  # fmt: skip
    version = F.exists(pack, lambda r: _given(r["bver"]) & ~(_is(r["bver"], "BIGINT") & F.coalesce(
        F.try_variant_get(r["bver"], "$", "bigint") == payloads.SENML_VERSION, F.lit(False))))
    fields = {**{name: first[name] for name in payloads.OWN_LABELS}, "ep": epoch}
    checks = (
        *_utf8(text),
        (pack.isNotNull() & (F.size(pack) > 0) & text.rlike(r"\]\s*$")
         & F.forall(raw, lambda r: r.isNotNull()), reasons.NO_PACK),
        (once, reasons.TWICE),
        (~version, reasons.VERSION),
        (foreign.isNull(), _with(foreign, reasons.NOT_TAKEN)),
        (~later, reasons.SEVERAL),
        (first["bn"].rlike(r"(?s)^.+/\z"), reasons.NO_DEVICE),
    )  # fmt: skip
    units = [(wrong.isNull(), _with(wrong, reasons.UNIT))]
    device = F.regexp_replace(first["bn"], r"/\z", "")
    decoded = _checked(device, fields, dict(zip(("ms", "lo"), text_of)), values, checks,
                       payloads.OWN_LABELS, units)  # fmt: skip
    return steps, F.when(text.isNotNull(), decoded)


def flat_json(text):
    """Column of flat JSON text -> the same: what is not identity is a measurement."""
    steps = Steps("_flat_")
    (found,) = steps.keep(found=_in_a_value(text, "map<string,string>", array=False))
    (data,) = steps.keep(data=_alone(found, array=False))
    known = F.array(*map(F.lit, payloads.FLAT))
    fields = {short: F.try_element_at(data, F.lit(key)) for key, short in payloads.FLAT.items()}
    values, *fields_ = steps.keep(
        values=F.transform(
            F.filter(F.map_entries(data), lambda e: ~F.array_contains(known, e["key"])),
            lambda e: F.struct(
                e["key"].alias("name"), F.lit(None).cast("string").alias("unit"),
                e["value"].try_cast("double").alias("value"),
            ),
        ),
        **fields,
    )  # fmt: skip
    fields = dict(zip(fields, fields_))
    device, epoch = fields.pop("device"), fields["ep"]
    integers = {short: _integer(column) for short, column in fields.items() if short != "ep"}
    numbers = {"ep": epoch, **dict(zip(integers, steps.keep(
        **{f"{short}_number": column for short, column in integers.items()})))}  # fmt: skip
    checks = (
        *_utf8(text),
        (data.isNotNull() & text.rlike(r"\}\s*$"), "not a JSON object"),
        (_once(F.map_keys(data), payloads.FLAT), reasons.TWICE),
        (F.length(device) > 0, "device is missing"),
    )
    decoded = _checked(device, numbers, fields, values, checks, tuple(payloads.FLAT)[1:])
    return steps, F.when(text.isNotNull(), decoded)
