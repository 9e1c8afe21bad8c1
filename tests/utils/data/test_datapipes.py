"""Pipes of samples do what PyTorch's do: programs in both, the same samples, types of errors and categories of warnings."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import sys
import warnings
from collections.abc import Iterator

import pytest

import flambeau as fb
from flambeau.utils import data
from flambeau.utils.data.datapipes import iter as pipes
from flambeau.utils.data.datapipes import map as keyed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


def add(*numbers):
    return sum(numbers)


def even(x):
    return x % 2 == 0


def mod2(x):
    return x % 2


def mod3(x):
    return x % 3


def bad(x):
    return 5


def none(x):
    return None if x == 2 else x % 2


HELPERS = """
W = lambda n=10: I.IterableWrapper(range(n))
P = lambda **more: d.DataLoader(W(9).shuffle().sharding_filter(), 2, shuffle=True, num_workers=2, **more)
S = lambda n=10: M.SequenceWrapper(list(range(n)))
T = lambda: I.IterableWrapper([(1, 2, 3), (4, 5, 6)])
L = lambda: I.IterableWrapper([[1, 2, 3], [4, 5, 6]])
D = lambda: I.IterableWrapper([{'a': 1, 'b': 2}, {'a': 3, 'b': 4}])

def same(copy):
    a, b = I.IterableWrapper([[1], [2]]).fork(2, copy=copy)
    return next(iter(a)) is next(iter(b))

def fork_again():
    a, b = W(4).fork(2)
    i, j = iter(a), iter(b)
    seen = [next(i), next(j)]
    i = iter(a)
    seen.append(next(i))
    try:
        seen.append(next(j))
    except RuntimeError:
        seen.append('invalid')
    return seen

def fork_twice():
    a, b = W(4).fork(2)
    return [list(a), list(b), list(a), list(b)]

def fork_half():
    a, b = W(4).fork(2)
    return list(a), list(a), list(b)

def inval():
    w = W(3)
    a = iter(w)
    next(a)
    b = iter(w)
    seen = [next(b)]
    try:
        next(a)
    except RuntimeError:
        seen.append('invalid')
    return seen
"""

PROGRAMS = {
    "fork again": "fork_again()",
    "fork twice": "fork_twice()",
    "fork half": "fork_half()",
    "a second iterator": "inval()",
    "lambda": "list(W(3).map(lambda x: x))",
    "filter": "list(W().filter(even))",
    "filter col": "list(T().filter(even,input_col=0))",
    "filter bad": "list(W().filter(add))",
    "batch": "(list(W().batch(3)), len(W().batch(3)), len(W().batch(3,drop_last=True)), list(W().batch(4,drop_last=True)))",
    "batch0": "W().batch(0)",
    "unbatch": "list(W().batch(3).batch(2).unbatch())",
    "unbatch2": "list(W().batch(3).batch(2).unbatch(unbatch_level=2))",
    "unbatch-1": "list(W().batch(3).batch(2).unbatch(unbatch_level=-1))",
    "unbatch-2": "list(W().batch(3).batch(2).unbatch(unbatch_level=-2))",
    "unbatch3": "list(W().batch(3).unbatch(unbatch_level=3))",
    "unbatchlen": "len(W().batch(3).unbatch())",
    "group": "list(W().groupby(mod3))",
    "group key": "list(W().groupby(mod3,keep_key=True))",
    "group size": "list(W().groupby(mod3,group_size=2))",
    "group buf": "list(W().groupby(mod3,buffer_size=4))",
    "group buf2": "list(W().groupby(mod3,buffer_size=4,group_size=3))",
    "group buf3": "list(W().groupby(mod3,buffer_size=4,group_size=3,guaranteed_group_size=2))",
    "group buf4": "list(W().groupby(mod3,buffer_size=3,group_size=3,guaranteed_group_size=3,drop_remaining=True))",
    "group buf5": "list(W(11).groupby(mod3,buffer_size=5,group_size=3,guaranteed_group_size=2,drop_remaining=True))",
    "group g": "list(W().groupby(mod3,group_size=0))",
    "group g 2": "list(W().groupby(mod3,guaranteed_group_size=1))",
    "group g 3": "list(W().groupby(mod3,group_size=2,guaranteed_group_size=3))",
    "grouplen": "len(W().groupby(mod3))",
    "concat": "(list(W(2).concat(W(3))), len(W(2).concat(W(3))))",
    "concat0": "I.Concater()",
    "concatbad": "W().concat([1])",
    "zip": "(list(W(2).zip(W(3))), len(W(2).zip(W(3))))",
    "zipbad": "W().zip([1])",
    "mux": "(list(W(2).mux(W(3),W(5))), len(W(2).mux(W(3),W(5))))",
    "fork": "[list(x) for x in W(4).fork(2)]",
    "fork zip": "(lambda a,b: list(a.zip(b)))(*W(4).fork(2))",
    "fork len": "[len(x) for x in W(4).fork(2)]",
    "fork1": "len(W(4).fork(1))",
    "fork0": "W(4).fork(0)",
    "forkb": "W(4).fork(2,buffer_size=0)",
    "forkb-": "[list(x) for x in W(4).fork(2,buffer_size=-1)]",
    "fork full": "[list(x) for x in W(4).fork(2,buffer_size=2)]",
    "fork exact": "[list(x) for x in W(4).fork(2,buffer_size=4)]",
    "fork exact3": "[list(x) for x in W(4).fork(2,buffer_size=3)]",
    "forkcopy": "W(4).fork(2,copy='x')",
    "copies": "[same(c) for c in (None,'shallow','deep')]",
    "demux": "[list(x) for x in W(6).demux(2,mod2)]",
    "demux 2": "[list(x) for x in W(6).demux(2,mod2)]",
    "demux bad": "[list(x) for x in W(6).demux(2,bad)]",
    "demux none": "[list(x) for x in W(6).demux(2,none)]",
    "demux none drop": "[list(x) for x in W(6).demux(2,none,drop_none=True)]",
    "demux full": "[list(x) for x in W(9).demux(2,mod2,buffer_size=2)]",
    "demux exact": "[list(x) for x in W(9).demux(2,mod2,buffer_size=4)]",
    "demux exact5": "[list(x) for x in W(9).demux(2,mod2,buffer_size=5)]",
    "demux len": "[len(x) for x in W(9).demux(2,mod2)]",
    "demux0": "W(3).demux(0,mod2)",
    "demuxb": "W(3).demux(2,mod2,buffer_size=0)",
    "shuffle": "list(W(20).shuffle())",
    "shuffle buf": "list(W(20).shuffle(buffer_size=4))",
    "shuffle seed": "list(W(20).shuffle(buffer_size=5).set_seed(4))",
    "shuffle off": "list(W(20).shuffle().set_shuffle(False))",
    "shuffle ub": "list(W(6).batch(2).shuffle(unbatch_level=1))",
    "shuffle0": "W().shuffle(buffer_size=0)",
    "shuffle len": "len(W().shuffle())",
    "shuffle twice": "(lambda s: (list(s),list(s),f.rand(1).item()))(W(6).shuffle())",
    "shard": "[(lambda s: (s.apply_sharding(3,i), list(s), len(s))[1:])(W(10).sharding_filter()) for i in range(3)]",
    "shard bad": "W().sharding_filter().apply_sharding(2,2)",
    "shard all": "list(W(4).sharding_filter())",
    "shard graph": "list(gs.apply_sharding(W(10).sharding_filter().map(add),3,1))",
    "shard twice": "list(gs.apply_sharding(W(10).sharding_filter().map(add).sharding_filter(),3,1))",
    "shard fork": "(lambda a,b: list(gs.apply_sharding(a.zip(b.map(add)),2,1)))(*W(10).sharding_filter().fork(2))",
    "shuffle settings": "list(gs.apply_shuffle_settings(W(6),True))",
    "shuffle settings off": "list(gs.apply_shuffle_settings(W(6).shuffle().map(add),False))",
    "graph pipes": "[type(x).__name__ for x in gs.get_all_graph_pipes(graph.traverse_dps(W(3).map(add).zip(W(2).batch(2))))]",
    "sampler": "list(I.Sampler(W(4)))",
    "sampler rnd": "list(I.Sampler(W(4),d.RandomSampler))",
    "sampler nolen": "I.Sampler(W(4).filter(even))",
    "collate": "[x.tolist() for x in W(4).batch(2).collate()]",
    "collate fn": "list(W(4).batch(2).collate(collate_fn=sum))",
    "wrapper copy": "(lambda l: (lambda p: (l.append(1), list(p), l))(I.IterableWrapper(l)))([0])",
    "yielded": "(lambda w: (list(w), w._number_of_samples_yielded))(W(3))",
    "repr": "(repr(W(3)), str(W(3).map(add)), repr(W(3).shuffle()))",
    "nolen": "len(W(3).filter(even))",
    "wrapgen": "len(I.IterableWrapper(x for x in 'a'))",
    "wrapgen2": "list(I.IterableWrapper(x for x in 'a'))",
    "attr": "W().nonsense",
    "m batch": "(lambda p: [p[i] for i in range(len(p))])(S().batch(4))",
    "m batch drop": "(lambda p: [p[i] for i in range(len(p))])(S().batch(4,drop_last=True))",
    "m batch oor": "S().batch(4)[3]",
    "m batch drop oor": "S().batch(4,drop_last=True)[2]",
    "m batch neg": "S().batch(4)[-1]",
    "m batch0": "S().batch(0)",
    "m concat": "(lambda p: [p[i] for i in range(len(p))])(S(2).concat(S(3)))",
    "m concat oor": "S(2).concat(S(3))[5]",
    "m concat0": "M.Concater()",
    "m concat bad": "M.Concater([1])",
    "m zip": "(lambda p: ([p[i] for i in range(len(p))]))(S(2).zip(S(3)))",
    "m zip oor": "S(2).zip(S(3))[2]",
    "m zip0": "M.Zipper()",
    "m shuffle": "list(S(8).shuffle())",
    "m shuffle idx": "list(S(8).shuffle(indices=[1,3,5]))",
    "m shuffle seed": "(lambda s: (list(s), len(s)))(S(8).shuffle().set_seed(3))",
    "m shuffle off": "list(S(8).shuffle().set_shuffle(False))",
    "m dict": "M.SequenceWrapper({'a':1})['a']",
    "m lambda": "S(3).map(lambda x: x)[0]",
    "dl": "[b.tolist() for b in d.DataLoader(W(6),2)]",
    "dl shuffle": "[b.tolist() for b in d.DataLoader(W(6).shuffle(),2,shuffle=True)]",
    "dl shuffle none": "[b.tolist() for b in d.DataLoader(W(6).shuffle(),2)]",
    "dl shuffle false": "[b.tolist() for b in d.DataLoader(W(6).shuffle(),2,shuffle=False)]",
    "dl rng": "(list(d.DataLoader(W(6).shuffle(),2)), f.rand(1).item())[1]",
    "dl workers": "[b.tolist() for b in P()]",
    "dl workers 2 passes": ""
    "(lambda l: [[b.tolist() for b in l] for _ in range(2)]+[f.rand(1).item()])(P())",
    "dl persistent": ""
    "(lambda l: [[b.tolist() for b in l] for _ in range(3)]+[f.rand(1).item()])(P(persistent_workers=True))",
    "dl workers noshard": "[b.tolist() for b in d.DataLoader(W(4),2,num_workers=2)]",
    "dl map": "[b.tolist() for b in d.DataLoader(S(6),2,shuffle=True)]",
    "dl map shuffle": "[b.tolist() for b in d.DataLoader(S(6).shuffle(),2,shuffle=True)]",
    "dl gen": "[b.tolist() for b in d.DataLoader(W(6).shuffle(),2,shuffle=True,generator=f.Generator().manual_seed(5))]",
    "chunk": "(d.DataChunk([1,2]), d.DataChunk([1,2]).as_str('-'), list(d.DataChunk([1,2]).raw_iterator()),"
    " isinstance(d.DataChunk([1]),list))",
}  # fmt: skip
COLUMNS = [
    (0, None), ([0, 2], None), ((0, 2), None), ([2, 0], None), (0, -1), ([0, 1], -1), (1, 0), (1, [0]), (1, [0, 1]), (None, 1), (0, 1),
]  # fmt: skip
PROGRAMS |= {f"map {kind} {i} {o}": f"list({kind}().map(add, input_col={i}, output_col={o}))" for i, o in COLUMNS for kind in "TL"}
KEYS = [("a", None), (["a", "b"], None), ("a", "c"), (["a", "b"], "c"), ("a", -1)]
PROGRAMS |= {f"map D {i} {o}": f"list(D().map(add, input_col={i!r}, output_col={o!r}))" for i, o in KEYS}


def outcome(framework, program):
    name = framework.__name__
    parts = {
        "f": framework, "d": importlib.import_module(f"{name}.utils.data"),
        "I": importlib.import_module(f"{name}.utils.data.datapipes.iter"),
        "M": importlib.import_module(f"{name}.utils.data.datapipes.map"),
        "gs": importlib.import_module(f"{name}.utils.data.graph_settings"),
        "graph": importlib.import_module(f"{name}.utils.data.graph"),
        "add": add, "even": even, "mod2": mod2, "mod3": mod3, "bad": bad, "none": none,
    }  # fmt: skip
    exec(HELPERS, parts)
    framework.manual_seed(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = repr(eval(program, parts))
        except Exception as error:
            answer = type(error).__name__
    if "persistent" in program:
        # The loader and its iterator hold each other.
        gc.collect()
    return answer, sorted({each.category.__name__ for each in caught})


@pytest.mark.oracle
@pytest.mark.parametrize("label", PROGRAMS)
def test_programs_run_as_in_pytorch(oracle, label):
    assert outcome(fb, PROGRAMS[label]) == outcome(oracle, PROGRAMS[label])


def test_files_are_found_opened_read_and_decoded(tmp_path):
    (tmp_path / "b.txt").write_text("hello")
    (tmp_path / "a.json").write_text("[1]")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "z.txt").write_text("z")
    folder = str(tmp_path)

    def names(pipe):
        return [os.path.relpath(path, folder) for path in pipe]

    assert names(pipes.FileLister(folder)) == ["a.json", "b.txt"]
    assert names(pipes.FileLister(folder, masks="*.txt")) == ["b.txt"]
    assert names(pipes.FileLister(folder, masks=["*.txt", "*.json"], recursive=True)) == ["a.json", "b.txt", "c/z.txt"]
    assert len(pipes.FileLister(folder, length=3)) == 3
    opened = pipes.FileLister(folder).open_files(mode="b")
    assert [stream.read() for _, stream in opened] == [b"[1]", b"hello"]
    chunks = pipes.FileLister(folder).open_files().read_from_stream(chunk=2)
    assert [text for _, text in chunks] == ["[1", "]", "he", "ll", "o"]
    assert [value for _, value in pipes.FileLister(folder).open_files(mode="b").routed_decode()] == [[1], "hello"]
    with pytest.raises(ValueError, match="mode must be"):
        pipes.FileLister(folder).open_files(mode="w")
    with pytest.raises(TypeError, match="length is not known"):
        len(pipes.FileLister(folder))


def test_pipes_and_forks_are_pickled():
    assert list(pickle.loads(pickle.dumps(pipes.IterableWrapper(range(3)).map(mod3).batch(2)))) == [[0, 1], [2]]
    assert [list(child) for child in pickle.loads(pickle.dumps(pipes.IterableWrapper(range(3)).fork(2)))] == [[0, 1, 2]] * 2


def test_own_stages_have_names_and_names_are_taken_once():
    name = "every_sample_twice"
    try:

        @data.functional_datapipe(name)
        class Twice(data.IterDataPipe):
            def __init__(self, source):
                self.source = source

            def __iter__(self):
                for sample in self.source:
                    yield sample
                    yield sample

        assert list(pipes.IterableWrapper("ab").every_sample_twice()) == ["a", "a", "b", "b"]
        with pytest.raises(Exception, match="is registered already"):
            data.functional_datapipe(name)(Twice)
    finally:
        del data.IterDataPipe.functions[name]
    with pytest.raises(AttributeError, match="no stage of that name"):
        pipes.IterableWrapper("ab").every_sample_twice()


def test_a_pass_over_pipes_goes_on_where_it_stopped():
    def make():
        pipe = pipes.IterableWrapper(range(40)).shuffle(buffer_size=8).sharding_filter()
        return data.DataLoader(pipe, 3, shuffle=True, num_workers=2, generator=fb.Generator().manual_seed(2))

    loader = make()
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    state = loader.state_dict()
    again = make()
    again.load_state_dict(state)

    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in loader]


def test_validation_says_what_is_wrong():
    @data.argument_validation
    def length(pipe: data.IterDataPipe[int]):
        return len(pipe)

    class Numbers(data.IterDataPipe):
        @data.runtime_validation
        def __iter__(self) -> Iterator[int]:
            yield 1
            yield "two"

    assert length(pipes.IterableWrapper([1])) == 1
    with pytest.raises(TypeError, match="pipe must be a IterDataPipe, got list"):
        length([1])
    with pytest.raises(RuntimeError, match="expected samples of type int, got str"):
        list(Numbers())
    with data.runtime_validation_disabled():
        assert list(Numbers()) == [1, "two"]

    @data.non_deterministic
    class Unsorted(data.IterDataPipe):
        def __iter__(self):
            return iter(())

    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        Unsorted()
    assert list(Unsorted()) == []


def test_threads_cannot_share_a_pipe():
    loader = data.DataLoader(pipes.IterableWrapper(range(4)), num_workers=2, worker_type="thread")

    with pytest.raises(NotImplementedError, match="worker_type='process'"):
        list(loader)
    assert keyed.SequenceWrapper({"a": 1})["a"] == 1
