"""Which modules a firmware needs: what its files import, and what that imports in turn.

Knows Python's import statements. It must not know boards, sets or what a module does.
"""

import ast
from pathlib import Path


class Sources:
    """Python files by the dotted name under which a board imports them.

    files  dict: dotted name -> Path of the source; a package has the name of its folder
    """

    def __init__(self, files):
        self.files = files

    def needed(self, roots):
        """Return the names, a set, that the modules `roots` import at any depth, themselves too.

        An import inside a function counts: it is only loaded later. A module with the name of
        another in a text needs that one, and all of a package with the head of its names
        ("sensors." + kind).
        """
        found, waiting = set(), list(roots)
        while waiting:
            name = waiting.pop()
            # A module is imported after the packages that it lies in.
            waiting += [name.rpartition(".")[0]] if "." in name else []
            if name not in self.files or name in found:
                continue
            found.add(name)
            waiting += self._imports(name)
        return found

    def _imports(self, name):
        path = self.files[name]
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _base(package, node)
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from self._below(node.value)

    def _below(self, text):
        # A module named in full, or all of a package for the head of their names, "sensors.".
        if text.endswith(".") and text[:-1] in self.files:
            yield from (name for name in self.files if name.startswith(text))
        elif "." in text and text in self.files:
            yield text


def _base(package, node):
    # The dotted name that `from ... import` names, without its dots in front.
    if not node.level:
        return node.module
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join(parts + ([node.module] if node.module else []))


def modules(folder, head=""):
    """Return {dotted name: Path} of the sources below a folder.

    head  what stands before the names: "umqtt_min." for the library's folder
    """
    found = {}
    for path in sorted(Path(folder).rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = head + ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name.rstrip(".")] = path
    return found
