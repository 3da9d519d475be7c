"""The library's REFERENCE.md has every public name, and no other.

Knows: its code spans, the modules that an application imports.
Must not know: what the names do.
"""

import ast
import re

import pytest
from device_plugin import ROOT

LIBRARY = ROOT / "lib" / "umqtt_min"
README = (LIBRARY / "REFERENCE.md").read_text()
SPANS = " ".join(re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", README, flags=re.S)))
# What a program or the other modules do with these is told in STORE.md.
STORES = {"FileStore", "FlashStore", "RAMStore"}


def tree(module):
    """The syntax tree of a module of the library."""
    return ast.parse((LIBRARY / f"{module}.py").read_text())


def found(module, name):
    """The class or function of that name."""
    return next(n for n in tree(module).body if getattr(n, "name", None) == name)


def attributes(definition):
    """Public names that a class has: methods, what is assigned in the class and to self."""
    names = set()
    for node in ast.walk(definition):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
            names.add(node.target.attr)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for t in getattr(target, "elts", [target]):
                    if isinstance(t, ast.Attribute) and getattr(t.value, "id", "") == "self":
                        names.add(t.attr)
    for node in definition.body:
        if isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return {name for name in names if not name.startswith("_")}


def parameters(function):
    """Names of its parameters, without self."""
    a = function.args
    return {p.arg for p in a.posonlyargs + a.args + a.kwonlyargs} - {"self", "client"}


def init(definition):
    """The constructor of a class."""
    return next(n for n in definition.body if getattr(n, "name", "") == "__init__")


def constants(module):
    """Upper-case names that a module defines."""
    return {
        t.id for n in tree(module).body if isinstance(n, ast.Assign) for t in n.targets
        if isinstance(t, ast.Name) and t.id.isupper() and not t.id.startswith("_")
    }  # fmt: skip


NAMES = {
    "MQTTClient": attributes(found("client", "MQTTClient"))
    | parameters(init(found("client", "MQTTClient"))),
    "MQTTException": attributes(found("exception", "MQTTException")),
    "errors": constants("errors"),
    "Reconnect": attributes(found("reconnect", "Reconnect"))
    | parameters(init(found("reconnect", "Reconnect"))),
    "robust": attributes(found("robust", "MQTTClient")),
    "aio": attributes(found("aio/__init__", "MQTTClient"))
    | parameters(init(found("aio/__init__", "MQTTClient"))),
    "stores": STORES,
    "options": parameters(init(found("store/ram", "RAMStore")))
    | parameters(init(found("store/files", "FileStore")))
    | parameters(init(found("store/flash", "FlashStore")))
    | parameters(init(found("store/journal", "Journal"))) - {"medium"},
    "counters": attributes(found("counters", "Counters")),
    "protocols": constants("packets") | constants("older"),
}  # fmt: skip


@pytest.mark.parametrize("where", NAMES)
def test_every_public_name_is_in_the_readme(where):
    assert NAMES[where], where
    missing = [name for name in sorted(NAMES[where]) if not re.search(rf"\b{name}\b", SPANS)]
    assert missing == []


def test_every_parameter_of_a_call_is_in_the_readme():
    calls = [("client", n.name, n) for n in found("client", "MQTTClient").body
             if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
             and not n.decorator_list]  # fmt: skip
    assert len(calls) > 12
    for _, name, function in calls:
        shown = re.search(rf"^\| [^|]*?`{name}\(([^`]*)\)`", README, re.M)
        assert shown, name
        for parameter in parameters(function) - {"timer"}:
            assert re.search(rf"\b{parameter}\b", shown.group(1)), (name, parameter)


def test_every_call_and_reason_that_the_readme_names_is_there():
    known = set().union(*NAMES.values())
    # What is loaded at its first use stands in tables.
    known |= {n.value for n in ast.walk(tree("lazy")) if isinstance(n, ast.Constant)}
    for module in ("store/ram", "store/files", "store/flash"):  # the options of stores
        functions = [n for n in ast.walk(tree(module)) if isinstance(n, ast.FunctionDef)]
        known |= set().union(*[parameters(f) for f in functions])
    table = README[README.index("| call | what it does |") :]
    table = table[: table.index("## Beside umqtt.simple")]
    for line in re.findall(r"^\| (`.*?) \|", table, re.M):
        for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", line):
            assert name in known, name
