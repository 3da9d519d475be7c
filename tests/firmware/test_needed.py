"""Which modules an update takes along: what the firmware imports, at any depth, and no more."""

import pytest
from umqtt_board.ota import fileset
from umqtt_board.ota.needed import Sources, modules


@pytest.fixture
def needed(tmp_path):
    """Function: texts of sources by path, roots -> the names that the roots need."""

    def find(texts, *roots):
        for path, text in texts.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return Sources(modules(tmp_path)).needed(roots)

    return find


def test_imports_are_followed_to_any_depth_and_others_left_out(needed):
    texts = {"app.py": "import one, json", "one.py": "from two import f", "two.py": "f = 1",
             "other.py": "import one"}  # fmt: skip
    assert needed(texts, "app") == {"app", "one", "two"}
    assert needed(texts, "other", "two") == {"other", "one", "two"}


def test_modules_that_import_each_other_are_found_once(needed):
    assert needed({"a.py": "import b", "b.py": "import a"}, "a") == {"a", "b"}


def test_a_module_in_a_package_needs_the_package_and_what_that_imports(needed):
    texts = {"app.py": "import net.tls", "net/__init__.py": "import log", "net/tls.py": "",
             "net/plain.py": "", "log.py": ""}  # fmt: skip
    assert needed(texts, "app") == {"app", "net", "net.tls", "log"}


def test_what_is_imported_from_a_package_may_be_a_module_of_it(needed):
    texts = {"app.py": "from net import tls, CONSTANT", "net/__init__.py": "CONSTANT = 1",
             "net/tls.py": "", "net/plain.py": ""}  # fmt: skip
    assert needed(texts, "app") == {"app", "net", "net.tls"}


def test_dots_in_front_name_the_packages_around(needed):
    texts = {"app.py": "import net.deep.inner", "net/__init__.py": "from . import face",
             "net/face.py": "from .side import x", "net/side.py": "x = 1", "net/unused.py": "",
             "net/deep/__init__.py": "",
             "net/deep/inner.py": "from ..above import y\nfrom . import by",
             "net/above.py": "y = 1", "net/deep/by.py": "", "net/deep/not.py": ""}  # fmt: skip
    assert needed(texts, "app") == {
        "app", "net", "net.face", "net.side", "net.deep", "net.deep.inner", "net.above",
        "net.deep.by"}


def test_an_import_inside_a_function_counts(needed):
    texts = {"app.py": "def f():\n    if 0:\n        from late import g\n    return g()",
             "late.py": "g = len"}  # fmt: skip
    assert needed(texts, "app") == {"app", "late"}


def test_a_text_can_name_a_module_or_all_of_a_package(needed):
    texts = {"app.py": 'load = {"tls": "net.tls"}', "one.py": '__import__("sensors." + kind)',
             "words.py": 'x = "net"; y = "no.module"; z = "net.tls is good"',
             "net/__init__.py": "", "net/tls.py": "", "sensors/__init__.py": "",
             "sensors/a.py": "", "sensors/b.py": "from .bus import f",
             "sensors/bus.py": ""}  # fmt: skip
    assert needed(texts, "app") == {"app", "net", "net.tls"}
    assert needed(texts, "one") == {"one", "sensors", "sensors.a", "sensors.b", "sensors.bus"}
    assert needed(texts, "words") == {"words"}


def test_the_librarys_names_begin_with_the_packages(tmp_path):
    (tmp_path / "store").mkdir()
    for name in ("__init__.py", "client.py", "store/__init__.py", "store/ram.py"):
        (tmp_path / name).write_text("")
    assert set(modules(tmp_path, "umqtt_min.")) == {
        "umqtt_min", "umqtt_min.client", "umqtt_min.store", "umqtt_min.store.ram"}


def test_the_projects_set_leaves_out_what_the_firmware_never_imports():
    files = set(fileset.of_project().files)
    assert not [path for path in files if "/aio/" in path]
    assert "umqtt_min/robust.mpy" not in files
    for name in ("app", "ota", "safe", "sensors/bme280", "sensors/simulated", "umqtt_min/tls",
                 "umqtt_min/__init__", "umqtt_min/store/recovery"):
        assert f"{name}.mpy" in files, name
