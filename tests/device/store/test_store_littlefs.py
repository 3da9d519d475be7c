"""FileStore on a real littlefs that loses its power: a sample of what `make powercut` does.

Knows: littlefs_cuts.py.  Must not know: records, small files.
"""
# only: micropython
# heap: 6M
# deadline: 180

from littlefs_cuts import Run


def sample(prog, chunk, seed, operations, cuts):
    """Cuts spread over the device operations of a short scenario."""
    run = Run(prog, chunk, seed, operations)
    try:
        assert run.total >= cuts, "%d operations" % run.total
        for i in range(cuts):
            run.cut(1 + i * run.total // cuts)
    finally:
        run.end()
    print("%d cuts of %d, %d more in recovery" % (run.cuts, run.total, run.again))


def test_littlefs_of_esp32_is_cut():
    sample(32, 112, 3, 6, 12)


def test_littlefs_of_rp2_is_cut():
    sample(256, 224, 4, 20, 12)
