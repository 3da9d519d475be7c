# Entry point of the virtual board's interpreter: leaves `__main__` as empty as a chip has it.
import sys

sys.path.insert(0, sys.path[0] + "/shim")
__import__("vstart").start(globals())
del sys
