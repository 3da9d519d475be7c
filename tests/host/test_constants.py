"""A constant that a module of the library repeats has the value of the one that it names.

MicroPython's const() is compiled away, so that a module cannot import it: what packets.py and
errors.py define is written down again where it is needed.

Knows: how a constant is written.  Must not know: what it is for.
"""

import ast
import operator

import pytest
from device_plugin import ROOT

LIBRARY = ROOT / "lib" / "umqtt_min"
TYPE_BITS = 0xF0
_OPERATORS = {ast.BitOr: operator.or_, ast.BitAnd: operator.and_, ast.LShift: operator.lshift}


def value(node):
    """The number that `const(...)` or a literal is, None for anything else."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "const":
        return value(node.args[0])
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](value(node.left), value(node.right))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def constants(module):
    """{name without underscore: number} of a module."""
    found = {}
    for node in ast.parse((LIBRARY / f"{module}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            number = value(node.value)
            if number is not None:
                found[node.targets[0].id.lstrip("_")] = number
    return found


def different(module, origin):
    """What both define, with another value."""
    mine, theirs = constants(module), constants(origin)
    return {n: (mine[n], theirs[n]) for n in mine if n in theirs and mine[n] != theirs[n]}


MODULES = ("client incoming session connect connack subscribe publisher durable arguments sender"
           " receiver keepalive large"
           " aio/__init__ aio/core aio/inbox aio/tasks").split()  # fmt: skip


@pytest.mark.parametrize("origin", ["packets", "errors"])
def test_a_repeated_constant_has_the_value_of_the_one_it_names(origin):
    assert len(constants(origin)) > 10
    wrong = {m: different(m, origin) for m in MODULES}
    assert {m: d for m, d in wrong.items() if d} == {}


def test_a_constant_of_the_stores_has_one_value():
    """Their modules share the types and lengths of records, and the states in the index."""
    seen = {}
    for path in sorted((LIBRARY / "store").glob("*.py")):
        for name, number in constants(f"store/{path.stem}").items():
            seen.setdefault(name, {}).setdefault(number, []).append(path.stem)
    assert len([n for n in seen.values() if len(list(n.values())[0]) > 1]) > 20
    assert {n: v for n, v in seen.items() if len(v) > 1} == {}


def test_packet_types_count_up():
    types = [n for n in constants("packets").values()][:14]
    assert [n & TYPE_BITS for n in types] == [t << 4 for t in range(1, 15)]


def test_a_packet_is_named_where_it_is_sent_and_where_it_is_handled():
    """No number of a packet type stands in the code."""
    numbers = {n for n in constants("packets").values() if n > 0x20} | {0x31, 0x34, 0x6A}
    for module in MODULES:
        tree = ast.parse((LIBRARY / f"{module}.py").read_text())
        for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]:
            for node in ast.walk(function):
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    hexadecimal = ast.get_source_segment(
                        (LIBRARY / f"{module}.py").read_text(), node
                    ).startswith("0x")
                    assert not (hexadecimal and node.value in numbers), (module, node.lineno)
