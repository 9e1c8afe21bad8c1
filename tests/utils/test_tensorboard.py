"""What `SummaryWriter` writes, read back by TensorBoard's own reader, beside what PyTorch's writes."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import flambeau as fb

pytest.importorskip("tensorboard")
# Protocol buffers that TensorBoard generated use names that its own dependencies deprecate.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def reader(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance=dict.fromkeys(
        ("scalars", "histograms", "tensors", "images", "audio", "compressedHistograms"), 0
    )).Reload()  # fmt: skip


def fill(writer, lib):
    """Everything that both libraries can write without a graph."""
    values = lib.tensor(np.linspace(-2, 3, 50, dtype=np.float32))
    writer.add_scalar("a b/loss", 0.5, 1)
    writer.add_scalar("a b/loss", lib.tensor(0.25), 2)
    writer.add_scalar("new", 0.1, 3, new_style=True, double_precision=True)
    writer.add_histogram("plain", values, 1)
    writer.add_histogram("auto", values, 1, bins="auto")
    writer.add_histogram("few", values, 1, bins="auto", max_bins=3)
    writer.add_histogram_raw("raw", 0, 1, 2, 1, 1, [0.5, 1.0], [1, 1], 1)
    writer.add_image("chw", lib.tensor(np.random.default_rng(0).random((3, 4, 5), np.float32)), 1)
    writer.add_image("hw", lib.tensor(np.arange(20, dtype=np.uint8).reshape(4, 5)), 1, dataformats="HW")
    writer.add_images("many", lib.tensor(np.random.default_rng(0).random((10, 1, 4, 5), np.float32)), 1)
    writer.add_audio("sound", lib.tensor(np.sin(np.arange(100, dtype=np.float32)))[None], 1, sample_rate=8000)
    writer.add_text("note", "**hi**", 1)
    writer.add_pr_curve("pr", lib.tensor([1, 0, 1, 1]), lib.tensor([0.9, 0.4, 0.35, 0.8]), 1, num_thresholds=5)
    writer.add_custom_scalars({"all": {"lines": ["Multiline", ["x", "y"]], "band": ["Margin", ["v", "l", "u"]]}})
    writer.add_mesh("mesh", lib.zeros(1, 4, 3), lib.zeros(1, 4, 3, dtype=lib.uint8), lib.zeros(1, 2, 3, dtype=lib.int32))
    writer.add_tensor("tensor", lib.arange(6.0).view(2, 3), 1)
    writer.add_scalars("both", {"x": 1.0, "y": 2.0}, 1)
    writer.add_hparams({"lr": 0.1, "name": "sgd", "deep": True, "n": 3}, {"acc": 0.9}, run_name="tried")
    writer.add_embedding(lib.arange(12.0).view(4, 3), ["a", "b", "c", "d"], lib.zeros(4, 3, 2, 2), 2, "words")
    writer.close()


def contents(folder):
    """Every value of an event file, by tag, pictures as pixels."""
    from PIL import Image

    read, found = reader(folder), {}
    tags = read.Tags()
    for tag in tags["scalars"]:
        found[tag] = [(e.step, e.value) for e in read.Scalars(tag)]
    for tag in tags["histograms"]:
        found[tag] = [(e.step, vars(e.histogram_value)) for e in read.Histograms(tag)]
    for tag in tags["images"]:
        found[tag] = [np.asarray(Image.open(io.BytesIO(e.encoded_image_string))).tolist() for e in read.Images(tag)]
    for tag in tags["audio"]:
        found[tag] = [(e.sample_rate, e.length_frames) for e in read.Audio(tag)]
    for tag in tags["tensors"]:
        metadata = read.SummaryMetadata(tag).plugin_data
        found[tag] = [(e.step, metadata.plugin_name, e.tensor_proto.SerializeToString()) for e in read.Tensors(tag)]
    return found


@pytest.mark.oracle
def test_what_is_read_back_is_what_pytorch_writes(oracle, tmp_path):
    from torch.utils.tensorboard import SummaryWriter as Theirs

    from flambeau.utils.tensorboard import SummaryWriter as Ours

    fill(Theirs(tmp_path / "theirs"), oracle)
    fill(Ours(tmp_path / "ours"), fb)

    for folder in ("", "tried", "both_x", "both_y"):
        theirs, ours = contents(tmp_path / "theirs" / folder), contents(tmp_path / "ours" / folder)
        assert ours.keys() == theirs.keys(), folder
        for tag in theirs:
            if tag not in ("mesh_VERTEX", "mesh_FACE", "mesh_COLOR", "tensor"):
                assert ours[tag] == theirs[tag], tag
    for name in ("projector_config.pbtxt", "00002/words/tensors.tsv", "00002/words/metadata.tsv"):
        assert (tmp_path / "ours" / name).read_text() == (tmp_path / "theirs" / name).read_text()


@pytest.mark.oracle
@pytest.mark.parametrize(
    "call",
    [
        lambda w: w.add_pr_curve_raw("pr", [75, 64, 21, 5, 0], [150, 105, 18, 0, 0], [0, 45, 132, 150, 150], [0, 11, 54, 70, 75],
                                     [0.33, 0.38, 0.54, 1.0, 0.0], [1.0, 0.85, 0.28, 0.07, 0.0], 1, 5),
        lambda w: w.add_custom_scalars_multilinechart(["x/a", "x/b"], "cat", "lines"),
        lambda w: w.add_custom_scalars_marginchart(["x/a", "x/b", "x/c"], "cat", "band"),
    ],
)  # fmt: skip
def test_curves_from_counts_and_charts_are_read_back_as_from_pytorch(oracle, tmp_path, call):
    from torch.utils.tensorboard import SummaryWriter as Theirs

    from flambeau.utils.tensorboard import SummaryWriter as Ours

    for name, kind in (("theirs", Theirs), ("ours", Ours)):
        writer = kind(tmp_path / name)
        call(writer)
        writer.close()

    theirs, ours = contents(tmp_path / "theirs"), contents(tmp_path / "ours")
    assert len(theirs) == 1
    assert ours == theirs


@pytest.fixture
def writer(tmp_path):
    from flambeau.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as made:
        yield made


def test_a_models_graph_follows_its_tensors(writer, tmp_path):
    model = fb.nn.Sequential(fb.nn.Linear(4, 3), fb.nn.ReLU(), fb.nn.Linear(3, 2))
    writer.add_graph(model, fb.zeros(5, 4))
    writer.flush()
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    graph = reader(tmp_path).Graph()
    assert isinstance(graph, GraphDef)
    edges = {node.name: list(node.input) for node in graph.node}

    assert edges == {
        "input/input.0": [],
        "Sequential/0": ["input/input.0"],
        "Sequential/1": ["Sequential/0"],
        "Sequential/2": ["Sequential/1"],
        "output/output.1": ["Sequential/2"],
    }


def test_films_figures_and_boxes_become_pictures(writer, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    figure = plt.figure(figsize=(1, 1))
    writer.add_figure("figure", figure)
    writer.add_video("film", fb.rand(2, 3, 3, 8, 8), fps=10)
    writer.add_image_with_boxes("boxes", fb.zeros(3, 10, 10), fb.tensor([[1, 1, 5, 5]]), labels=["x"])
    writer.flush()
    read = reader(tmp_path)

    assert set(read.Tags()["images"]) == {"figure", "film", "boxes"}
    assert read.Images("film")[0].encoded_image_string[:6] == b"GIF89a"
    assert not plt.fignum_exists(figure.number)


def test_what_comes_after_a_crash_is_hidden(tmp_path):
    from flambeau.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as first:
        for step in range(5):
            first.add_scalar("loss", step, step)
    with SummaryWriter(tmp_path, purge_step=3, filename_suffix=".again") as second:
        second.add_scalar("loss", 30, 3)

    assert [e.value for e in reader(tmp_path).Scalars("loss")] == [0, 1, 2, 30]


def test_writing_goes_on_after_closing(tmp_path):
    from flambeau.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(tmp_path)
    writer.add_scalar("a", 1, 0)
    writer.close()
    writer.add_scalar("a", 2, 1)
    writer.close()

    assert [e.value for e in reader(tmp_path).Scalars("a")] == [1, 2]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda w: w.add_scalar("a", fb.zeros(2)), AssertionError, r"\(2,\)"),
        (lambda w: w.add_scalar("a", [1.0]), NotImplementedError, "list"),
        (lambda w: w.add_scalar("a", "much"), ValueError, "much"),
        (lambda w: w.add_scalar("a", object()), NotImplementedError, "object"),
        (lambda w: w.add_histogram("a", fb.zeros(0)), ValueError, "no element"),
        (lambda w: w.add_image("a", fb.zeros(3, 3)), AssertionError, "CHW"),
        (lambda w: w.add_video("a", fb.zeros(3, 3)), ValueError, r"\(N, T, C, H, W\)"),
        (lambda w: w.add_graph(fb.nn.Linear(1, 1)), ValueError, "input_to_model"),
        (lambda w: w.add_hparams([], {}), TypeError, "hparam_dict"),
        (lambda w: w.add_embedding(fb.zeros(2, 2), ["a"]), ValueError, "labels"),
        (lambda w: w.add_custom_scalars({"a": {"b": ["Pie", []]}}), ValueError, "Pie"),
        (lambda w: w.add_histogram_raw("a", 0, 1, 1, 1, 1, [1], []), ValueError, "bucket_limits"),
    ],
)
def test_mistakes_are_named(writer, call, error, message):
    with pytest.raises(error, match=message):
        call(writer)


def test_without_the_package_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("flambeau.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)

    with pytest.raises(ImportError, match=r"flambeau\[tensorboard\]"):
        import flambeau.utils.tensorboard  # noqa: F401




def test_an_embedding_over_another_is_warned_of(writer, capsys):
    writer.add_embedding(fb.zeros(3, 2))
    assert capsys.readouterr().out == ""
    writer.add_embedding(fb.zeros(3, 2))
    assert capsys.readouterr().out == "warning: Embedding dir exists, did you set global_step for add_embedding()?\n"
