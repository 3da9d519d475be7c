"""mypy over library and firmware, once with the stubs of each port: `python tools/check_types.py`.

Knows: where the stubs of a port come from (dependency group `types-PORT` of pyproject.toml) and
that two of them cannot share a folder. Must not know: what is checked; mypy's settings stand in
pyproject.toml. Exit status: 0 all is well, 1 mypy found something, 2 the stubs cannot be had.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUBS = Path(sys.prefix) / "types"
PORTS = ("esp32", "rp2")


def stubs(port):
    """The folder of that port's stubs; made when it is missing or older than pyproject.toml."""
    folder = STUBS / port
    mark = folder / ".ready"
    project = ROOT / "pyproject.toml"
    if mark.exists() and mark.stat().st_mtime >= project.stat().st_mtime:
        return folder
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--upgrade", "--target", str(folder), "--group", f"{project}:types-{port}"]
    if subprocess.run(pip).returncode:
        print(f"types: pip could not install the stubs of {port}; see above", file=sys.stderr)
        sys.exit(2)
    mark.touch()
    return folder


def check(port, *what):
    """Run mypy; returns (exit status, output). what: folders with device code, as mypy finds
    modules in them, and the options that name what to check."""
    folder = stubs(port)
    paths = [folder, ROOT / "lib", ROOT / "firmware"]
    argv = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    argv += ["--custom-typeshed-dir", str(folder), "--no-site-packages", *what]
    argv += ["--cache-dir", str(ROOT / "build" / "types" / port)]
    env = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    """Check everything for every port."""
    worst = 0
    for port in PORTS:
        for what in (("-p", "umqtt_min"), ("firmware",)):
            status, output = check(port, *what)
            print(f"{port} {what[-1]}: {output}", end="")
            worst = max(worst, status)
    return worst


if __name__ == "__main__":
    sys.exit(main())
