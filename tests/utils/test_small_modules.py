"""Small modules of `torch.utils` that programs import, beside PyTorch's."""

from __future__ import annotations

import copy
import gc
import importlib
import io
import logging
import os
import pickle
import subprocess
import sys
import warnings

import pytest

import flambeau as fb
from flambeau.nn.modules.container import Container
from flambeau.utils import collect_env, debug_log, file_baton, mkldnn, show_pickle, throughput_benchmark, weak
from flambeau.utils.serialization import config

torch = pytest.importorskip("torch")
theirs = {
    name: importlib.import_module(f"torch.utils.{name}")
    for name in ("weak", "throughput_benchmark", "show_pickle", "collect_env", "file_baton")
}
BOTH_WEAK = [(fb, weak), (torch, theirs["weak"])]


# -- weak --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lib", "room"), BOTH_WEAK, ids=["ours", "theirs"])
def test_keys_are_found_by_identity_and_forgotten(lib, room):
    a, b = lib.ones(2), lib.ones(2)
    found = room.WeakTensorKeyDictionary({a: 1})
    found[b] = 2
    found.setdefault(a, 7)

    assert (len(found), found[a], found[b], found.get(lib.ones(2)), lib.ones(2) in found) == (2, 1, 2, None, False)
    assert [k is a or k is b for k in found] == [True, True]
    assert sorted(found.values()) == [1, 2]
    assert [type(r) for r in found.keyrefs()] == [room.WeakIdRef] * 2
    del b
    gc.collect()
    assert (len(found), found == room.WeakIdKeyDictionary({a: 1}), found == room.WeakIdKeyDictionary({a: 2})) == (1, True, False)
    assert copy.copy(found) == found == copy.deepcopy(found) == found.copy()
    c = lib.zeros(1)
    assert dict((found | {c: 5}).items())[c] == 5
    assert (found.pop(a), found.pop(a, 9), len(found)) == (1, 9, 0)
    with pytest.raises(KeyError):
        found[a]
    with pytest.raises(TypeError):
        found[3] = 1
    with pytest.raises(KeyError):
        found.popitem()


@pytest.mark.parametrize(("lib", "room"), BOTH_WEAK, ids=["ours", "theirs"])
def test_weak_references_to_tensors(lib, room):
    t = lib.ones(2)
    ref, again, of_tensor = room.WeakIdRef(t), room.WeakIdRef(t), room.TensorWeakRef(t)

    assert (ref == again, hash(ref) == id(t), ref() is t, of_tensor() is t) == (True, True, True, True)
    assert not ref == room.WeakIdRef(lib.ones(2))  # noqa: SIM201 - weak references compare differently with !=
    with pytest.raises(AssertionError, match=r"expected torch\.Tensor"):
        room.TensorWeakRef(3)
    del t
    gc.collect()
    assert (ref(), of_tensor(), ref == again, ref == ref) == (None, None, False, True)


# -- files -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [file_baton, theirs["file_baton"]], ids=["ours", "theirs"])
def test_a_baton_is_held_by_one(room, tmp_path):
    one, other = (room.FileBaton(str(tmp_path / "lock"), wait_seconds=0.01) for _ in range(2))

    assert (one.try_acquire(), other.try_acquire(), os.path.exists(tmp_path / "lock")) == (True, False, True)
    one.release()
    other.wait()
    assert other.try_acquire()
    other.release()


class Unknown:
    def __init__(self):
        self.a = [1, 2]


def shown(room, value, protocol=2):
    out = io.StringIO()
    room.DumpUnpickler.dump(io.BytesIO(pickle.dumps(value, protocol)), out)
    return out.getvalue()


@pytest.mark.parametrize(
    "value",
    [{"b": [1, "x"], "a": (1.5, None)}, {1, 2}, Unknown, [Unknown()], b"x" * 3, list(range(100))],
    ids=["dict", "set", "class", "object", "bytes", "list"],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_are_shown_without_running_them(value, protocol):
    try:
        wanted = shown(theirs["show_pickle"], value, protocol)
    except TypeError:                                 # what PyTorch's cannot show, ours may
        wanted = None

    found = shown(show_pickle, value, protocol)
    assert found == wanted if wanted is not None else found


def test_a_checkpoint_is_shown(tmp_path, capsys):
    path = tmp_path / "s.pt"
    torch.save({"a": torch.ones(2), "b": 1}, path)
    out = []
    for room in (show_pickle, theirs["show_pickle"]):
        assert room.main(["x", f"{path}@*/data.pkl"]) in (None, 0)
        out.append(capsys.readouterr().out)

    assert "pers.obj(('storage', torch.FloatStorage" in out[0]
    assert out[0] == out[1]
    assert show_pickle.main(["x"]) == theirs["show_pickle"].main(["x"]) == 2
    with pytest.raises(Exception, match="Could not find member matching"):
        show_pickle.main(["x", f"{path}@*/none.pkl"])


def test_settings_of_files(tmp_path):
    path = str(tmp_path / "t.pt")
    fb.save(fb.ones(3), path)
    with config.patch("load.mmap", True):
        assert config.load.mmap
        assert fb.load(path).tolist() == [1, 1, 1]
        with pytest.raises(ValueError, match="mmap"), open(path, "rb") as file:
            fb.load(file)
    assert not config.load.mmap
    with config.patch({"save.compute_crc32": False}):
        assert not fb.serialization.get_crc32_options()
    assert fb.serialization.get_crc32_options()
    real = importlib.import_module("torch.utils.serialization.config")
    for section, names in {"load": ("mmap", "mmap_flags", "endianness", "calculate_storage_offsets"),
                           "save": ("compute_crc32", "storage_alignment", "use_pinned_memory_for_d2h")}.items():  # fmt: skip
        for name in names:
            assert getattr(getattr(config, section), name) == getattr(getattr(real, section), name), name
    with pytest.raises(AttributeError, match="does not exist"):
        config.load.nothing = 1
    with pytest.raises(NotImplementedError, match="leave it at 64"):
        config.save.storage_alignment = 4096


# -- times -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"time_us": 1500}, {"time_ms": 0.5}, {"time_s": 2}, {"time_us": 3}, {"time_us": 2.5e6}])
def test_times_as_text(given):
    assert throughput_benchmark.format_time(**given) == theirs["throughput_benchmark"].format_time(**given)
    with pytest.raises(AssertionError, match="only one"):
        throughput_benchmark.format_time(time_us=1, time_s=1)


@pytest.mark.parametrize("threads", [1, 3])
def test_throughput_of_a_module(threads):
    calls = []

    class Counted(fb.nn.Module):
        def forward(self, x, *, scale=1):
            calls.append(scale)
            return x * scale

    bench = throughput_benchmark.ThroughputBenchmark(Counted())
    with pytest.raises(RuntimeError, match="add_input"):
        bench.benchmark()
    bench.add_input(fb.ones(2), scale=3)
    stats = bench.benchmark(num_calling_threads=threads, num_warmup_iters=2, num_iters=10)

    assert len(calls) == 2 * threads + 10
    assert bench.run_once(fb.ones(1), scale=5).item() == 5
    assert stats.num_iters == 10
    assert stats.total_time_seconds == pytest.approx(10 / stats.iters_per_second)
    assert [line.split(":")[0] for line in str(stats).splitlines()] == [
        "Average latency per example", "Total number of iterations",
        "Total number of iterations per second (across all threads)", "Total time",
    ]  # fmt: skip
    bench.add_input(None, scale=None)
    bench._inputs.pop(0)
    with pytest.raises(TypeError):
        bench.benchmark(num_calling_threads=threads)


def test_norms_of_gradients_are_logged(caplog):
    t = fb.ones(2, requires_grad=True)
    out = t * 2
    with caplog.at_level(logging.INFO):
        debug_log.debug_grad_log(out, t, fb.ones(1))
        (out * fb.tensor([3.0, 4.0])).sum().backward()

    assert [record.getMessage() for record in caplog.records] == ["[rank 0][bwd] t0: 5.0 t1: 10.0"]


# -- the machine -------------------------------------------------------------------------------------------------------------


def test_the_machine_is_told():
    mine, real = collect_env.get_env_info(), theirs["collect_env"].get_env_info()
    same = """
        gcc_version clang_version cmake_version os libc_version python_version python_platform is_xpu_available pip_version
        hip_compiled_version hip_runtime_version is_debug_build caching_allocator_config
    """

    assert mine._fields == theirs["collect_env"].SystemEnv._fields
    assert {name: getattr(mine, name) for name in same.split()} == {name: getattr(real, name) for name in same.split()}
    assert collect_env.env_info_fmt == theirs["collect_env"].env_info_fmt
    assert "numpy==" in mine.pip_packages
    text = collect_env.pretty_str(mine)
    labels = [line.split(":")[0] for line in text.splitlines() if re_label(line)]
    assert labels[:5] == ["PyTorch version", "Is debug build", "CUDA used to build PyTorch", "ROCM used to build PyTorch", "OS"]
    for name in ("run_and_read_all", "run_and_return_first_line"):
        for command in ("printf 'a\\nb'", "false"):
            assert getattr(collect_env, name)(collect_env.run, command) == getattr(theirs["collect_env"], name)(collect_env.run, command)
    assert collect_env.run("echo hi; echo no >&2; exit 3") == theirs["collect_env"].run("echo hi; echo no >&2; exit 3") == (3, "hi", "no")


def re_label(line):
    return ":" in line and not line.startswith(("[", " "))


@pytest.mark.parametrize(
    ("module", "said"),
    [("collect_env", "PyTorch version: 2.7.0+flambeau"), ("show_pickle", "usage: show_pickle"), ("bottleneck", "usage:")],
)
def test_modules_run_as_programs_under_the_name_of_torch(module, said):
    done = subprocess.run(
        [sys.executable, "-m", f"torch.utils.{module}"], capture_output=True, text=True, env={**os.environ, "FLAMBEAU_AS_TORCH": "1"},
        timeout=300,
    )  # fmt: skip

    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# -- the rest ----------------------------------------------------------------------------------------------------------------


def test_what_has_no_layout_of_its_own_is_refused():
    with pytest.raises(NotImplementedError, match="oneDNN"):
        mkldnn.to_mkldnn(fb.nn.Linear(1, 1))
    with pytest.raises(NotImplementedError, match="oneDNN"):
        mkldnn.MkldnnLinear(fb.nn.Linear(1, 1))


def test_older_names_warn():
    from flambeau.utils.data import backward_compatibility

    for make in (lambda: backward_compatibility.worker_init_fn(0), lambda: Container(a=fb.nn.Linear(1, 1), b=None)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = make()
        assert [w.category for w in caught] == [FutureWarning]
    assert list(dict(made.named_modules())) == ["", "a"]
    assert repr(made) == "Container(\n  (a): Linear(in_features=1, out_features=1, bias=True)\n  (b): None\n)"


