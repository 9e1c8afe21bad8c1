"""The cache of compiled objects: whatever lies in its folder, a kernel is either the right one or compiled anew."""

from __future__ import annotations

import ctypes
import os
import platform
import random
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import pytest

from flambeau_kernels.engine.launching import call
from flambeau_kernels.engine.machine_code import cache, elf, llvm
from flambeau_kernels.engine.machine_code.cache import ObjectCache, pack, unpack

KEY, OTHER_KEY = "ab" * 32, "cd" * 32
BODY = b"the object code of a kernel" * 40

needs_modes = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners and modes here")
needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
needs_elf = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="objects are ELF on Linux")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


def stored(folder: Path, key: str = KEY, body: bytes = BODY) -> Path:
    """The file of `body` under `key`, written by the cache."""
    ObjectCache(str(folder)).put(key, body)
    return folder / f"{key}.o"


def test_what_one_cache_has_used_is_carried_to_another(folder, tmp_path):
    first, other = ObjectCache(str(folder)), ObjectCache(str(tmp_path / "other"))
    stored(folder, OTHER_KEY, BODY[:7])
    stored(folder, "ef" * 32)                          # which nobody asks for
    first.put(KEY, BODY)
    assert first.get(OTHER_KEY) == BODY[:7]

    raw, keys = first.bundled()
    assert keys == [KEY, OTHER_KEY]
    assert other.unbundle(raw) == keys
    assert (other.get(KEY), other.get(OTHER_KEY), other.get("ef" * 32)) == (BODY, BODY[:7], None)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw + b"x", lambda raw: raw[:200] + b"y" + raw[201:]])
def test_of_a_damaged_bundle_nothing_is_stored(folder, tmp_path, damage):
    first, other = ObjectCache(str(folder)), ObjectCache(str(tmp_path / "other"))
    first.put(KEY, BODY)
    first.put(OTHER_KEY, BODY)

    assert other.unbundle(damage(first.bundled()[0])) is None
    assert (other.get(KEY), other.get(OTHER_KEY)) == (None, None)


# -- files ---------------------------------------------------------------------------------------------------------------


def test_what_was_put_is_found_by_its_key_alone(folder):
    stored(folder)

    assert ObjectCache(str(folder)).get(KEY) == BODY
    assert ObjectCache(str(folder)).get(OTHER_KEY) is None


def test_an_object_under_the_name_of_another_key_is_not_found(folder):
    stored(folder).rename(folder / f"{OTHER_KEY}.o")

    assert ObjectCache(str(folder)).get(OTHER_KEY) is None


def test_every_altered_or_shortened_file_is_not_found(folder):
    path = stored(folder)
    whole = path.read_bytes()
    rng = random.Random(1)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        assert ObjectCache(str(folder)).get(KEY) is None
    for end in (0, 1, 50, 64, 96, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert ObjectCache(str(folder)).get(KEY) is None
    path.write_bytes(whole + b"\0")
    assert ObjectCache(str(folder)).get(KEY) is None
    path.write_bytes(whole)
    assert ObjectCache(str(folder)).get(KEY) == BODY


def test_a_huge_file_is_not_read_to_find_out_that_it_is_wrong(folder):
    path = stored(folder)
    os.truncate(path, 1 << 40)  # a hole: takes no room

    assert ObjectCache(str(folder)).get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_fifo_under_the_name_of_an_object_does_not_hang(folder):
    os.mkfifo(folder / f"{KEY}.o", 0o600)

    start = time.monotonic()
    assert ObjectCache(str(folder)).get(KEY) is None
    assert time.monotonic() - start < 5


def test_a_folder_under_the_name_of_an_object_is_a_miss_that_cannot_be_written(folder):
    (folder / f"{KEY}.o").mkdir()
    disk = ObjectCache(str(folder))

    assert disk.get(KEY) is None
    disk.put(KEY, BODY)
    assert disk.get(KEY) is None
    assert [p.name for p in folder.iterdir()] == [f"{KEY}.o"]


@needs_modes
def test_links_are_not_followed(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    stored(folder).rename(elsewhere)
    (folder / f"{KEY}.o").symlink_to(elsewhere)

    assert ObjectCache(str(folder)).get(KEY) is None

    ObjectCache(str(folder)).put(KEY, BODY)  # takes the place of the link, and leaves what it led to
    assert not (folder / f"{KEY}.o").is_symlink()
    assert ObjectCache(str(folder)).get(KEY) == BODY
    assert elsewhere.exists()


@needs_modes
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_object_that_others_may_write_to_is_not_loaded(folder, mode):
    stored(folder).chmod(mode)

    assert ObjectCache(str(folder)).get(KEY) is None


@needs_root
def test_an_object_of_another_user_is_not_loaded(folder):
    os.chown(stored(folder), 65534, 65534)

    assert ObjectCache(str(folder)).get(KEY) is None


@needs_modes
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="what root wrote is everybody's")
def test_an_object_is_not_loaded_by_another_user(folder, monkeypatch):
    stored(folder)
    disk = ObjectCache(str(folder))
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)

    assert disk.get(KEY) is None


@needs_modes
def test_files_are_written_so_that_they_are_found_again_under_any_umask(folder):
    before = os.umask(0o002)
    try:
        path = stored(folder)
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert ObjectCache(str(folder)).get(KEY) == BODY


# -- the folder ----------------------------------------------------------------------------------------------------------


@needs_modes
@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("level", ["folder", "parent", "grandparent"])
def test_a_folder_that_others_may_reach_by_writing_is_refused(tmp_path, mode, level):
    folder = tmp_path / "grandparent" / "parent" / "folder"
    folder.mkdir(parents=True)
    stored(folder)
    unsafe = next(p for p in (folder, *folder.parents) if p.name == level)
    unsafe.chmod(mode)
    disk = ObjectCache(str(folder))

    assert disk.get(KEY) is None
    assert str(unsafe) in disk.why_unsafe
    assert "chmod go-w" in disk.why_off


@needs_modes
def test_a_folder_is_not_made_where_others_may_write(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    disk = ObjectCache(str(shared / "made" / "cache"))

    assert disk.why_unsafe is not None
    assert list(shared.iterdir()) == []


@needs_modes
def test_a_folder_of_ours_in_a_sticky_folder_of_all_is_used(tmp_path):
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    disk = ObjectCache(str(sticky / "mine"))

    assert disk.why_off is None
    disk.put(KEY, BODY)
    assert disk.get(KEY) == BODY


@needs_modes
def test_a_sticky_folder_is_no_place_for_objects_themselves(tmp_path):
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)

    assert str(sticky) in ObjectCache(str(sticky)).why_unsafe


@needs_root
@pytest.mark.parametrize("level", ["folder", "parent"])
def test_a_folder_of_another_user_or_inside_one_is_refused(tmp_path, level):
    folder = tmp_path / "parent" / "folder"
    folder.mkdir(parents=True)
    stored(folder)
    foreign = folder if level == "folder" else folder.parent
    os.chown(foreign, 65534, 65534)
    disk = ObjectCache(str(folder))

    assert disk.get(KEY) is None
    assert str(foreign) in disk.why_unsafe


@needs_modes
def test_a_folder_behind_a_link_is_judged_by_where_it_is(tmp_path):
    shared = tmp_path / "shared"
    (shared / "cache").mkdir(parents=True)
    shared.chmod(0o777)
    (tmp_path / "link").symlink_to(shared / "cache")

    assert str(shared) in ObjectCache(str(tmp_path / "link")).why_unsafe


def test_a_file_where_the_folder_should_be_switches_the_cache_off(tmp_path):
    (tmp_path / "file").write_text("")
    disk = ObjectCache(str(tmp_path / "file"))

    assert str(tmp_path / "file") in disk.why_off
    disk.put(KEY, BODY)
    assert disk.get(KEY) is None


_AS_NOBODY = """
import os, sys
from flambeau_kernels.engine.machine_code.cache import ObjectCache
folder, key, other = sys.argv[1:]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
disk = ObjectCache(folder)
print(len(disk.get(key)), end=" ")
disk.put(other, b"new")
print(len(disk.get(key)), disk.get(other), disk.why_not_written)
"""


@needs_root
def test_another_user_reads_what_root_made_and_cannot_write(fresh_python):
    with tempfile.TemporaryDirectory() as made:  # pytest's own folders are closed to others
        folder = Path(made) / "cache"
        folder.mkdir()
        for each in (folder.parent, folder):
            each.chmod(0o755)
        if any(not parent.stat().st_mode & stat.S_IXOTH for parent in folder.parents):
            pytest.skip("other users cannot reach temporary folders here")
        stored(folder)
        said = fresh_python("-c", _AS_NOBODY, folder, KEY, OTHER_KEY)

    assert said.startswith(f"{len(BODY)} {len(BODY)} None ")
    assert "cannot be written: Permission denied" in said


# -- writing -------------------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_still_read(folder, monkeypatch):
    stored(folder)
    disk = ObjectCache(str(folder))

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *a: (refuse if flags & os.O_CREAT else real)(path, flags, *a))
    disk.put(OTHER_KEY, BODY)

    assert disk.get(KEY) == BODY
    assert disk.get(OTHER_KEY) is None
    assert "Permission denied" in disk.why_not_written


@needs_root
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts a small file system of Linux")
def test_a_full_disk_leaves_no_part_of_a_file(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", folder], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        disk = ObjectCache(str(folder))
        disk.put(KEY, BODY)
        disk.put(OTHER_KEY, bytes(1 << 20))

        assert [p.name for p in folder.iterdir()] == [f"{KEY}.o"]
        assert disk.get(KEY) == BODY
        assert "space" in disk.why_not_written
    finally:
        subprocess.run(["umount", folder], check=True)


def test_an_error_in_the_middle_of_writing_leaves_no_part_of_a_file(folder, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    disk = ObjectCache(str(folder))
    monkeypatch.setattr(os, "replace", fail)
    disk.put(KEY, BODY)

    assert list(folder.iterdir()) == []
    assert "No space left" in disk.why_not_written


_WRITE = """
import random, sys
from flambeau_kernels.engine.machine_code.cache import ObjectCache
disk, rng = ObjectCache(sys.argv[1]), random.Random(int(sys.argv[2]))
size, wrong = int(sys.argv[4]), 0
for _ in range(int(sys.argv[3])):
    n = rng.randrange(4)
    disk.put(f"{n:064x}", bytes([n]) * size)
    found = disk.get(f"{rng.randrange(4):064x}")
    wrong += found is not None and found != found[:1] * size
print(wrong, disk.why_not_written)
"""


def _writer(folder: Path, seed: int, count: int, size: int) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WRITE, str(folder), str(seed), str(count), str(size)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_writer_killed_in_the_middle_leaves_whole_objects_or_none(folder):
    size = 1 << 20
    for seed in range(4):
        with _writer(folder, seed, 1 << 30, size) as writer:
            deadline = time.monotonic() + 60
            while not list(folder.glob("*.o")) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.02)
            writer.kill()
    disk = ObjectCache(str(folder))
    found = [disk.get(path.stem) for path in folder.glob("*.o")]

    assert found
    assert all(body == body[:1] * size for body in found)


def test_what_killed_writers_left_behind_goes_when_it_is_nobodys(folder):
    old, young = folder / "tmp.1.deadbeef", folder / "tmp.2.deadbeef"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    ObjectCache(str(folder)).put(KEY, BODY)

    assert not old.exists()
    assert young.exists()


def test_two_processes_write_and_read_at_once(folder):
    with _writer(folder, 1, 150, 50_000) as first, _writer(folder, 2, 150, 50_000) as second:
        said = [writer.communicate(timeout=120)[0] for writer in (first, second)]

    assert said == ["0 None\n"] * 2


# -- loading -------------------------------------------------------------------------------------------------------------

TEXT = "define i64 @{name}(i64 %a) {{\n  %b = add i64 %a, {number}\n  ret i64 %b\n}}\n"
CALLING = "declare i64 @nowhere_at_all(i64)\ndefine i64 @{name}(i64 %a) {{\n  %b = call i64 @nowhere_at_all(i64 %a)\n  ret i64 %b\n}}\n"


@pytest.fixture
def own_disk(folder, monkeypatch):
    """The process's cache in a folder of the test."""
    disk = ObjectCache(str(folder))
    monkeypatch.setattr(llvm, "disk", lambda: disk)
    return disk


def _call(address: int, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(x)


def _planted(kind: str, name: str) -> bytes:
    good = llvm.machine().emit_object(TEXT.format(name=name, number=5))
    return {
        "nothing": b"",
        "garbage": random.Random(3).randbytes(700),
        "ELF's first bytes and garbage": good[:16] + random.Random(3).randbytes(700),
        "half an object": good[: len(good) // 2],
        "another kernel": llvm.machine().emit_object(TEXT.format(name="another", number=7)),
        "text": b"// PTX",
    }[kind]


KINDS = ("nothing", "garbage", "ELF's first bytes and garbage", "half an object", "another kernel", "text")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_object_under_the_right_key_and_digest_is_compiled_anew(own_disk, kind):
    name = f"planted{KINDS.index(kind)}"
    text = TEXT.format(name=name, number=5)
    own_disk.put(llvm._key(f"{llvm.EVERYTHING}\n{text}"), _planted(kind, name))
    before = llvm.counts["compiled"]

    assert _call(llvm.compile_ir(text, name), 10) == 15
    assert llvm.counts["compiled"] == before + 1
    assert own_disk.get(llvm._key(f"{llvm.EVERYTHING}\n{text}")) == llvm.machine().emit_object(text)


def test_an_object_that_calls_what_is_not_there_is_compiled_anew(own_disk, capfd):
    text = TEXT.format(name="calling", number=5)
    own_disk.put(llvm._key(f"{llvm.EVERYTHING}\n{text}"), llvm.machine().emit_object(CALLING.format(name="calling")))

    assert _call(llvm.compile_ir(text, "calling"), 10) == 15


def test_a_text_that_itself_calls_what_is_not_there_raises_as_before(own_disk, capfd):
    with pytest.raises(RuntimeError, match=r"nowhere_at_all|materialize"):
        llvm.compile_ir(CALLING.format(name="lost"), "lost")


_PLANT_LAUNCHERS = """
import hashlib
from flambeau_kernels.engine.builtins import launchers
from flambeau_kernels.engine.machine_code import llvm
key = hashlib.sha256(f"launchers|{llvm.machine().fingerprint}|{launchers._sources()}".encode()).hexdigest()
llvm.disk().put(key, llvm.machine().emit_object("define i64 @one() {\\n  ret i64 1\\n}"))
before = launchers._object_code(compile=False)
print(launchers.load(compile=False), before is not None, launchers._object_code(compile=False))
"""


def test_an_object_that_has_not_the_launchers_is_a_miss(folder, fresh_python):
    told = fresh_python("-c", _PLANT_LAUNCHERS, FLAMBEAU_CACHE=str(folder), FLAMBEAU_BACKEND="llvm")

    assert told.split() == ["{}", "True", "None"]


def test_ptx_that_is_no_text_is_compiled_anew(own_disk):
    from flambeau_kernels.cuda import ptx

    text = "define void @nothing() {\n  ret void\n}\n"
    right = ptx.compile_ptx(text)
    (path,) = Path(own_disk.folder).glob("*.o")
    own_disk.put(path.stem, b"\xff\xfe no text")

    assert ptx.compile_ptx(text) == right
    assert own_disk.get(path.stem) == right.encode()


_MUTANTS = """
import os, random, sys
from flambeau_kernels.engine.machine_code import elf
from flambeau_kernels.engine.machine_code.llvm import _load, machine

os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LLVM tells which names it did not find, which need be no text

seed, count = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
text = '''
@table = private constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
declare double @sqrt(double)
define double @f(i64 %a) {
  %p = getelementptr double, ptr @table, i64 %a
  %x = load double, ptr %p
  %y = call double @sqrt(double %x)
  %c = fmul double %y, 3.14
  ret double %c
}
'''
good = machine().emit_object(text)
kind = elf.MACHINES[machine().triple.partition("-")[0]]
elf.read(good, kind)
loaded = 0
for _ in range(count):
    body = bytearray(good)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(body))
        width = rng.choice((1, 1, 2, 4, 8))
        body[at:at + width] = rng.choice((rng.randbytes(width), b'\\0' * width, b'\\xff' * width))
    body = bytes(body[: len(good)])
    try:
        elf.read(body, kind)
        _load(body, ('f',))
        loaded += 1
    except RuntimeError:
        pass
print('loaded', loaded)
"""


@needs_elf
@pytest.mark.parametrize("seed", range(3))
def test_mutated_objects_are_loaded_or_refused_and_never_end_the_process(fresh_python, seed):
    assert "loaded" in fresh_python("-c", _MUTANTS, seed, 150)


@needs_elf
def test_every_object_of_the_compiler_is_sound():
    for level in (llvm.WRITTEN, llvm.PLAIN, llvm.LOOPS, llvm.EVERYTHING):
        elf.read(llvm.machine().emit_object(TEXT.format(name="sound", number=5), level), elf.MACHINES[platform.machine()])


# -- saying so -----------------------------------------------------------------------------------------------------------

_COMPUTE = """
import warnings, sys
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    from flambeau_kernels.engine.machine_code import llvm
    text = "define i64 @{name}(i64 %a) {{\\n  ret i64 %a\\n}}"
    for name in ("one", "two"):
        llvm.compile_ir(text.format(name=name), name)
print(len(said), [str(w.message) for w in said], llvm.counts)
"""


@needs_modes
def test_a_program_sees_the_warning_of_an_unsafe_folder(tmp_path, fresh_python):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    program = "import flambeau as fb; fb.exp(fb.ones(3)); fb.sin(fb.ones(3))"
    own = {"FLAMBEAU_CACHE": str(shared / "kernels"), "FLAMBEAU_BACKEND": "llvm"}
    said = fresh_python("-c", f"import sys; sys.stderr = sys.stdout\n{program}", **own)

    assert said.count("kept in memory only") == 1
    assert f"chmod go-w {shared}" in said


@needs_modes
def test_an_unsafe_folder_is_told_once_and_memory_is_used(tmp_path, fresh_python):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    said = fresh_python("-c", _COMPUTE, FLAMBEAU_CACHE=str(shared))

    assert said.startswith("1 ")
    assert f"chmod go-w {shared}" in said
    assert "{'compiled': 2, 'loaded': 2}" in said
    assert list(shared.iterdir()) == []


def test_a_cache_that_is_switched_off_says_nothing(fresh_python):
    assert fresh_python("-c", _COMPUTE, FLAMBEAU_CACHE="off").startswith("0 ")


def test_header_holds_the_key():
    assert unpack(KEY, pack(KEY, BODY)) == BODY
    assert unpack(OTHER_KEY, pack(KEY, BODY)) is None
    assert bytes.fromhex(KEY) in pack(KEY, BODY)[:cache.HEADER.size]


def twice(x):
    return x + x


helpers = ModuleType("helpers")


def calls_a_function_of_a_module(chunk, x):
    x[0] = helpers.several(x[0])


def test_code_that_names_a_function_of_a_module_is_compiled_anew_when_that_changes(monkeypatch):
    monkeypatch.setattr(helpers, "several", twice, raising=False)
    before = call.description(calls_a_function_of_a_module)
    monkeypatch.setattr(helpers, "several", lambda x: x + x + x)

    assert call.description(calls_a_function_of_a_module) != before
