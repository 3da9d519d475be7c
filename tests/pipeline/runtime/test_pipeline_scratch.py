"""What Spark puts aside lies where nobody else can read it, or have put something before."""

import os
import stat
import subprocess
import sys

from umqtt_runtime.java_process import Java

PROGRAM = """
import os
from umqtt_runtime.session import session
spark = session("scratch", cores=1)
folder = spark.conf.get("spark.local.dir")
assert spark.range(3).repartition(2).count() == 3  # by way of the disk
print(folder, os.stat(folder).st_mode, sorted(os.listdir(folder)) != [])
spark.stop()
"""


def test_it_is_private_not_to_be_guessed_and_gone_with_the_process(tmp_path):
    # What another user could have made: a folder of his, where an older release put its own.
    (tmp_path / "his").mkdir()
    (tmp_path / f"umqtt-spark-{os.getuid()}").symlink_to(tmp_path / "his")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                          timeout=400, env=os.environ | {"TMPDIR": str(tmp_path)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    folder, mode, used = done.stdout.split()
    assert os.path.dirname(folder) == str(tmp_path) and used == "True"
    assert stat.S_IMODE(int(mode)) == 0o700
    assert not os.path.exists(folder) and list((tmp_path / "his").iterdir()) == []


def test_no_two_are_the_same():
    one, two = Java(), Java()
    folders = {one.scratch(), two.scratch()}
    assert len(folders) == 2 and all(os.path.isdir(folder) for folder in folders)
