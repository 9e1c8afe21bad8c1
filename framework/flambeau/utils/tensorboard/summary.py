"""Summaries: what TensorBoard's files hold, made from arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from tensorboard.util import tensor_util

from ._arrays import as_array, as_number, encode_gif, encode_png, encode_wav, picture
from ._proto import proto

_messages = proto("compat.proto.summary_pb2")
HistogramProto, Summary, SummaryMetadata = _messages.HistogramProto, _messages.Summary, _messages.SummaryMetadata
TensorProto = proto("compat.proto.tensor_pb2").TensorProto
TensorShapeProto = proto("compat.proto.tensor_shape_pb2").TensorShapeProto

__all__ = [
    "audio",
    "custom_scalars",
    "histogram",
    "histogram_raw",
    "hparams",
    "image",
    "image_boxes",
    "mesh",
    "pr_curve",
    "pr_curve_raw",
    "scalar",
    "tensor_proto",
    "text",
    "video",
]

def scalar(name: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number.

    Args:
        new_style: as a tensor, which the scalars plugin reads faster.
        double_precision: keep float64 then.
    """
    number = as_number(value)
    if not new_style:
        return Summary(value=[Summary.Value(tag=name, simple_value=number)])
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    if double_precision:
        tensor = TensorProto(double_val=[number], dtype="DT_DOUBLE")
    else:
        tensor = TensorProto(float_val=[number], dtype="DT_FLOAT")
    return Summary(value=[Summary.Value(tag=name, tensor=tensor, metadata=metadata)])


def tensor_proto(tag: str, tensor: Any) -> Any:
    """A whole tensor."""
    made = tensor_util.make_tensor_proto(as_array(tensor))
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="tensor"))
    return Summary(value=[Summary.Value(tag=tag, tensor=made, metadata=metadata)])


def histogram(name: str, values: Any, bins: Any = "tensorflow", max_bins: int | None = None) -> Any:
    """How often `values` fall into `bins`.

    Args:
        bins: edges, the name of a rule of `numpy.histogram_bin_edges`, or ``'tensorflow'`` for edges that grow by a tenth.
        max_bins: neighbouring bins are joined until there are about so many.
    Raises: ValueError without values or counts.
    """
    values = as_array(values).reshape(-1).astype(np.float64)
    if not values.size:
        raise ValueError("The input has no element.")
    edges = growing_edges() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, limits = np.histogram(values, bins=edges)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins  # as many as divide evenly: PyTorch, too, may leave a few more than max_bins
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        limits = np.append(limits[:-1][::step], limits[-1])
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ValueError("The histogram is empty, please file a bug report.")
    # A bin's limit is its upper edge; an empty bin in front shows where the first one begins.
    first, last = filled[0], filled[-1]
    kept = counts[first : last + 1]
    if first:
        kept, limits = np.append(0, kept), limits[first : last + 2]
    else:
        kept, limits = np.append(0, kept), limits[: last + 2]
    made = HistogramProto(
        min=values.min(),
        max=values.max(),
        num=len(values),
        sum=values.sum(),
        sum_squares=values.dot(values),
        bucket_limit=limits.tolist(),
        bucket=kept.tolist(),
    )
    return Summary(value=[Summary.Value(tag=name, histo=made)])


def growing_edges() -> np.ndarray:
    """Edges from 1e-12 to 1e20, each 1.1 times the one before, on both sides of 0."""
    positive, v = [], 1e-12
    while v < 1e20:
        positive.append(v)
        v *= 1.1
    return np.array([-v for v in reversed(positive)] + [0.0] + positive)


def histogram_raw(
    name: str,
    min: float,
    max: float,
    num: int,
    sum: float,
    sum_squares: float,
    bucket_limits: Any,
    bucket_counts: Any,
) -> Any:
    """A histogram that was counted elsewhere.

    Args:
        min, max, num, sum, sum_squares: of the values.
        bucket_limits: upper edges of the bins.
        bucket_counts: how many values each holds.
    """
    made = HistogramProto(
        min=min,
        max=max,
        num=num,
        sum=sum,
        sum_squares=sum_squares,
        bucket_limit=bucket_limits,
        bucket=bucket_counts,
    )
    return Summary(value=[Summary.Value(tag=name, histo=made)])


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """A picture, or a batch of them as one grid; see `SummaryWriter.add_image`.

    Args:
        tensor: uint8 of 0 to 255, or numbers of 0 to 1.
        rescale: factor of its size.
        dataformats: what each dimension is.
    """
    return _image(tag, picture(as_array(tensor), dataformats), rescale)


def image_boxes(tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Any = None) -> Any:
    """A picture with boxes of ``(left, top, right, bottom)`` in pixels, and perhaps a label for each.

    Args:
        tensor_image, rescale, dataformats: see `image`.
        tensor_boxes: ``(N, 4)``.
        labels: N strings.
    """
    pixels = np.ascontiguousarray(picture(as_array(tensor_image), dataformats))
    return _image(tag, pixels, rescale, as_array(tensor_boxes), labels)


def _image(tag: str, pixels: np.ndarray, rescale: float, boxes: Any = None, labels: Any = None) -> Any:
    pixels = np.ascontiguousarray(pixels)
    height, width, channels = pixels.shape
    made = Summary.Image(
        height=int(height * rescale),
        width=int(width * rescale),
        colorspace=channels,
        encoded_image_string=encode_png(pixels, rescale, boxes, labels),
    )
    return Summary(value=[Summary.Value(tag=tag, image=made)])


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """Films ``(N, T, C, H, W)`` side by side, as one animated GIF.

    Args:
        tensor: uint8 of 0 to 255, or numbers of 0 to 1.
        fps: frames per second.
    """
    films = as_array(tensor)
    if films.ndim != 5:
        raise ValueError(f"add_video: vid_tensor must have 5 dimensions (N, T, C, H, W), got shape {films.shape}")
    films = films if films.dtype == np.uint8 else np.clip(films * 255.0, 0, 255).astype(np.uint8)
    n, frames, channels, height, width = films.shape
    columns = 1 << ((n - 1).bit_length() + 1) // 2  # as square as powers of 2 allow
    rows = -(-n // columns)
    made = np.zeros((frames, rows * height, columns * width, channels), np.uint8)
    for number, film in enumerate(films.transpose(0, 1, 3, 4, 2)):
        row, column = divmod(number, columns)
        made[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = film
    encoded = Summary.Image(height=made.shape[1], width=made.shape[2], colorspace=channels, encoded_image_string=encode_gif(made, fps))
    return Summary(value=[Summary.Value(tag=tag, image=encoded)])


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """A sound of one channel, numbers of -1 to 1, ``(1, L)`` or ``(L,)``.

    Args:
        tensor: the sound.
        sample_rate: in Hz.
    """
    sound = as_array(tensor).squeeze()
    if sound.ndim > 1:
        raise ValueError(f"add_audio: snd_tensor must have one channel, (1, L) or (L,), got shape {sound.shape}")
    made = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=sound.size,
        encoded_audio_string=encode_wav(sound, sample_rate),
        content_type="audio/wav",
    )
    return Summary(value=[Summary.Value(tag=tag, audio=made)])


def text(tag: str, text: str) -> Any:
    """A text, in Markdown."""
    content = proto("plugins.text.plugin_data_pb2").TextPluginData(version=0).SerializeToString()
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text", content=content))
    tensor = TensorProto(
        dtype="DT_STRING",
        string_val=[text.encode("utf8")],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    return Summary(value=[Summary.Value(tag=tag + "/text_summary", metadata=metadata, tensor=tensor)])


def custom_scalars(layout: dict[str, dict[str, Any]]) -> Any:
    """How scalars are drawn together: category -> chart -> ``['Multiline' or 'Margin', tags]``.

    Raises: ValueError for another kind of chart, or a margin chart without three tags.
    """
    layout_pb2 = proto("plugins.custom_scalar.layout_pb2")
    categories = []
    for title, charts in layout.items():
        made = []
        for name, (kind, tags) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise ValueError(f"add_custom_scalars: a margin chart has 3 tags, value, lower, upper, got {tags}")
                series = layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
                chart = layout_pb2.Chart(title=name, margin=layout_pb2.MarginChartContent(series=[series]))
            elif kind == "Multiline":
                chart = layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=tags))
            else:
                raise ValueError(f"add_custom_scalars: a chart is 'Multiline' or 'Margin', got {kind!r}")
            made.append(chart)
        categories.append(layout_pb2.Category(title=title, chart=made))
    content = layout_pb2.Layout(category=categories).SerializeToString()
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="custom_scalars"))
    tensor = TensorProto(dtype="DT_STRING", string_val=[content], tensor_shape=TensorShapeProto())
    return Summary(value=[Summary.Value(tag="custom_scalars__config__", tensor=tensor, metadata=metadata)])


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """Precision against recall at thresholds between 0 and 1.

    Args:
        labels: whether each is positive.
        predictions: the probability given to that.
        num_thresholds: how many, at most 127.
        weights: of each prediction, 1 by default.
    """
    num_thresholds = min(num_thresholds, 127)
    labels, predictions = as_array(labels).reshape(-1), as_array(predictions).reshape(-1)
    weights = np.ones(labels.size) if weights is None else as_array(weights).reshape(-1)
    at = np.clip(np.floor(predictions * (num_thresholds - 1)).astype(np.int32), 0, num_thresholds - 1)
    hits = np.bincount(at, labels.astype(np.float64) * weights, num_thresholds)
    misses = np.bincount(at, (1 - labels.astype(np.float64)) * weights, num_thresholds)
    # What is predicted at or above each threshold.
    tp, fp = hits[::-1].cumsum()[::-1], misses[::-1].cumsum()[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    precision = tp / np.maximum(1e-7, tp + fp)
    recall = tp / np.maximum(1e-7, tp + fn)
    return pr_curve_raw(tag, tp, fp, tn, fn, precision, recall, num_thresholds)


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int = 127, weights: Any = None
) -> Any:
    """A curve that was counted elsewhere: true and false positives, true and false negatives, precision and recall.

    Args:
        tp, fp, tn, fn, precision, recall: one number for each threshold.
        num_thresholds: how many, at most 127.
        weights: not used.
    """
    plugin_data = proto("plugins.pr_curve.plugin_data_pb2")
    content = plugin_data.PrCurvePluginData(version=0, num_thresholds=min(num_thresholds, 127)).SerializeToString()
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="pr_curves", content=content))
    data = np.stack([as_array(np.asarray(row)).reshape(-1) for row in (tp, fp, tn, fn, precision, recall)]).astype(np.float32)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in data.shape])
    tensor = TensorProto(dtype="DT_FLOAT", float_val=data.reshape(-1).tolist(), tensor_shape=shape)
    return Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config_dict: dict[str, Any] | None, display_name: str | None = None) -> Any:
    """A mesh or a cloud of points.

    Args:
        vertices: ``(B, N, 3)``.
        colors: ``(B, N, 3)``, 0 to 255, or None.
        faces: ``(B, M, 3)`` numbers of vertices, or None.
        config_dict: settings of the renderer.
        display_name: the title.
    """
    from tensorboard.plugins.mesh import metadata as of_mesh

    MeshPluginData = proto("plugins.mesh.plugin_data_pb2").MeshPluginData
    parts = [
        (vertices, MeshPluginData.VERTEX, np.float32),
        (faces, MeshPluginData.FACE, np.int32),
        (colors, MeshPluginData.COLOR, np.uint8),
    ]
    parts = [(as_array(data).astype(dtype), kind) for data, kind, dtype in parts if data is not None]
    components = of_mesh.get_components_bitmask([kind for _, kind in parts])
    made = []
    for data, kind in parts:
        metadata = of_mesh.create_summary_metadata(
            tag, display_name, kind, components, data.shape, json_config=json.dumps(config_dict or {}, sort_keys=True)
        )
        metadata.plugin_data.plugin_name = of_mesh.PLUGIN_NAME
        name = of_mesh.get_instance_name(tag, kind)
        made.append(Summary.Value(tag=name, tensor=tensor_util.make_tensor_proto(data), metadata=metadata))
    return Summary(value=made)


def hparams(
    hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: dict[str, list[Any]] | None = None
) -> tuple[Any, Any, Any]:
    """What was tried in a run and what is measured: the experiment, the beginning and the end of the session.

    Args:
        hparam_dict: name -> bool, str, int, float, None or a tensor of one element.
        metric_dict: its names are those of the scalars that are measured.
        hparam_domain_discrete: name -> the values it may have.
    Raises: TypeError for other values; ValueError for other types.
    """
    from google.protobuf import struct_pb2
    from tensorboard.plugins.hparams.metadata import (
        EXPERIMENT_TAG,
        PLUGIN_DATA_VERSION,
        PLUGIN_NAME,
        SESSION_END_INFO_TAG,
        SESSION_START_INFO_TAG,
    )

    values: Any = struct_pb2
    api, plugin_data = proto("plugins.hparams.api_pb2"), proto("plugins.hparams.plugin_data_pb2")
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, dict):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    domains = hparam_domain_discrete or {}
    if not isinstance(domains, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for name, domain in domains.items():
        if name not in hparam_dict or not isinstance(domain, list) or any(type(v) is not type(hparam_dict[name]) for v in domain):
            raise TypeError(f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}].")

    kinds = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING", int: "DATA_TYPE_FLOAT64", float: "DATA_TYPE_FLOAT64"}
    start, infos = plugin_data.SessionStartInfo(), []
    for name, value in hparam_dict.items():
        if value is None:
            continue
        if not isinstance(value, (bool, str, int, float)):
            value = float(as_array(value).reshape(-1)[0]) if not isinstance(value, (dict, set)) else value
        kind = next((k for k in (bool, str, int, float) if isinstance(value, k)), None)
        if kind is None:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        field = {bool: "bool_value", str: "string_value"}.get(kind, "number_value")
        start.hparams[name].CopyFrom(values.Value(**{field: value}))
        possible = values.ListValue(values=[values.Value(**{field: v}) for v in domains[name]]) if name in domains else None
        infos.append(api.HParamInfo(name=name, type=api.DataType.Value(kinds[kind]), domain_discrete=possible))

    def wrapped(tag: str, **content: Any) -> Any:
        data = plugin_data.HParamsPluginData(version=PLUGIN_DATA_VERSION, **content).SerializeToString()
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=PLUGIN_NAME, content=data))
        return Summary(value=[Summary.Value(tag=tag, metadata=metadata)])

    metrics = [api.MetricInfo(name=api.MetricName(tag=name)) for name in metric_dict]
    return (
        wrapped(EXPERIMENT_TAG, experiment=api.Experiment(hparam_infos=infos, metric_infos=metrics)),
        wrapped(SESSION_START_INFO_TAG, session_start_info=start),
        wrapped(SESSION_END_INFO_TAG, session_end_info=plugin_data.SessionEndInfo(status=api.Status.Value("STATUS_SUCCESS"))),
    )
