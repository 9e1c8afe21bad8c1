"""`SummaryWriter`: everything that goes to TensorBoard's event files."""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import summary
from ._arrays import as_array, as_number, picture_of_figure
from ._proto import proto

event_pb2 = proto("compat.proto.event_pb2")

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """One event file.

    Args:
        log_dir: its folder.
        max_queue: events that wait before they are written.
        flush_secs: seconds after which they are written anyway.
        filename_suffix: at the end of its name.
    """

    def __init__(self, log_dir: str, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self._settings = (str(log_dir), max_queue, flush_secs, filename_suffix)
        self.event_writer = EventFileWriter(*self._settings)

    def get_logdir(self) -> str:
        """The folder."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """Write `event`.

        Args:
            step: its step.
            walltime: its time, in seconds since the epoch; now by default.
        """
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Write a summary; see `add_event` for the step and the time."""
        self.add_event(event_pb2.Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """Write a graph and its run's metadata."""
        graph, stats = graph_profile
        self.add_event(event_pb2.Event(graph_def=graph.SerializeToString()), None, walltime)
        tagged = event_pb2.TaggedRunMetadata(tag="step1", run_metadata=stats.SerializeToString())
        self.add_event(event_pb2.Event(tagged_run_metadata=tagged), None, walltime)

    def flush(self) -> None:
        """Write what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what waits and end the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Go on after `close`, in a new file."""
        self.event_writer = EventFileWriter(*self._settings)


class SummaryWriter:
    """Writes what a program measures to a folder that TensorBoard shows.

    Args:
        log_dir: the folder; by default ``runs/`` with the date, the time and the host's name.
        comment: at the end of that default.
        purge_step: after a crash at a step, what is there of this step and later ones is hidden.
        max_queue: events that wait before they are written.
        flush_secs: seconds after which they are written anyway.
        filename_suffix: at the end of the files' names.

    Every ``add_*`` takes `global_step`, and `walltime`, the event's time in seconds since the epoch.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = log_dir
        self.purge_step = purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder itself, opened anew after `close`."""
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = self._open(str(self.log_dir))
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                step = self.purge_step
                self.file_writer.add_event(event_pb2.Event(step=step, file_version="brain.Event:2"))
                started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                self.file_writer.add_event(event_pb2.Event(step=step, session_log=started))
                self.purge_step = None
        return self.file_writer

    def _open(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def get_logdir(self) -> str | os.PathLike:
        """The folder."""
        return self.log_dir

    def _write(self, made: Any, global_step: int | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(made, global_step, walltime)

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number.

        Args:
            tag: the curve's name; slashes group curves.
            scalar_value: a number or a tensor of one element.
            new_style: as a tensor, which TensorBoard reads faster; kept in float64 with `double_precision`.
        Raises: AssertionError for more than one element; NotImplementedError for a list.
        """
        made = summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision)
        self._write(made, global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Several numbers, drawn as curves of one chart. Each name gets a folder of its own.

        Args:
            main_tag: the chart's name.
            tag_scalar_dict: curve -> number.
        """
        walltime = time.time() if walltime is None else walltime
        base = self._get_file_writer().get_logdir()
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            folder = f"{base}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = self._open(folder)
            made = summary.scalar(main_tag, as_number(value))
            self.all_writers[folder].add_summary(made, global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """A whole tensor."""
        self._write(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How often values fall into bins.

        Args:
            values: of any shape, at least one.
            bins: edges, a rule of `numpy.histogram_bin_edges`, or ``'tensorflow'``: edges that grow by a tenth.
            max_bins: neighbouring bins are joined until there are about so many.
        Raises: ValueError without values.
        """
        self._write(summary.histogram(tag, values, bins, max_bins=max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that was counted elsewhere.

        Args:
            min, max, num, sum, sum_squares: of the values.
            bucket_limits: upper edges of the bins.
            bucket_counts: how many values each holds.
        Raises: ValueError if there are not as many counts as limits.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._write(made, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture.

        Args:
            img_tensor: uint8 of 0 to 255, or numbers of 0 to 1; 1, 3 or 4 channels.
            dataformats: what each dimension is: ``'CHW'``, ``'HWC'``, ``'HW'``, ...
        Raises: ValueError if that does not fit the shape.
        """
        self._write(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Several pictures, in a grid; see `add_image` for the arguments."""
        self._write(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
    ) -> None:
        """A picture with boxes.

        Args:
            img_tensor, dataformats: see `add_image`.
            box_tensor: ``(N, 4)``: left, top, right and bottom, in pixels.
            rescale: factor of the picture's size.
            labels: a string, or N of them.
        Raises: ValueError if there are not as many labels as boxes.
        """
        if isinstance(labels, str):
            labels = [labels]
        if labels is not None and len(labels) != as_array(box_tensor).reshape(-1, 4).shape[0]:
            raise ValueError(f"add_image_with_boxes: {len(labels)} labels for box_tensor of shape {tuple(box_tensor.shape)}")
        made = summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, labels)
        self._write(made, global_step, walltime)

    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """A matplotlib figure, or a list of them.

        Args:
            figure: what to draw.
            close: whether to close it afterwards.
        """
        if isinstance(figure, list):
            pixels = np.stack([picture_of_figure(one, close) for one in figure])
            self.add_image(tag, pixels, global_step, walltime, dataformats="NCHW")
        else:
            self.add_image(tag, picture_of_figure(figure, close), global_step, walltime, dataformats="CHW")

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Films, as an animated GIF.

        Args:
            vid_tensor: ``(N, T, C, H, W)``, uint8 of 0 to 255, or numbers of 0 to 1.
            fps: frames per second.
        """
        self._write(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound.

        Args:
            snd_tensor: ``(1, L)`` or ``(L,)``, numbers of -1 to 1.
            sample_rate: in Hz.
        """
        self._write(summary.audio(tag, snd_tensor, sample_rate=sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        """A text, in Markdown."""
        self._write(summary.text(tag, text_string), global_step, walltime)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """A model's modules and how tensors flow between them, from one call without gradients.

        Args:
            model: an `nn.Module`.
            input_to_model: a tensor, or a tuple of arguments.
            verbose: print the graph.
            use_strict_trace: taken for PyTorch's sake; results of any kind are followed.
        Raises: ValueError without `input_to_model`.
        """
        from ._graph import graph_of

        if input_to_model is None:
            raise ValueError("add_graph: input_to_model must be the arguments to call the model with, got None")
        made = graph_of(model, input_to_model)
        if verbose:
            print(made[0])
        self._get_file_writer().add_graph(made)

    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Vectors for the embedding projector.

        Args:
            mat: ``(N, D)``.
            metadata: N labels, or N rows of them under `metadata_header`.
            label_img: ``(N, C, H, W)``, a picture for each vector.
            tag: the embedding's name.
        Raises: ValueError if the numbers of vectors, labels and pictures differ.
        """
        from . import _embedding

        vectors = as_array(mat)
        if vectors.ndim != 2:
            raise ValueError("mat should be 2D, where mat.size(0) is the number of data points")
        if metadata is not None and len(metadata) != len(vectors):
            raise ValueError("#labels should equal with #data points")
        if label_img is not None and len(label_img) != len(vectors):
            raise ValueError("#images should equal with #data points")
        subfolder = os.path.join(f"{global_step or 0:05d}", quote(tag, safe="").replace("%", "%%"))
        folder = Path(self._get_file_writer().get_logdir()) / subfolder
        if folder.exists():
            print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
        folder.mkdir(parents=True, exist_ok=True)
        if metadata is not None:
            _embedding.write_labels(metadata, metadata_header, folder)
        if label_img is not None:
            _embedding.write_sprite(label_img, folder)
        _embedding.write_vectors(vectors, folder)
        name = f"{tag}:{global_step or 0:05d}"
        _embedding.add_to_config(self._get_file_writer().get_logdir(), name, subfolder, label_img, metadata is not None)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision against recall.

        Args:
            labels: whether each is positive.
            predictions: the probability given to that.
            num_thresholds: how many, at most 127.
            weights: of each prediction, 1 by default.
        """
        made = summary.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._write(made, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """A curve that was counted elsewhere, one number for each threshold.

        Args:
            true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts: the counts.
            precision, recall: what follows of them.
            num_thresholds: how many, at most 127.
            weights: not used.
        """
        made = summary.pr_curve_raw(
            tag,
            true_positive_counts,
            false_positive_counts,
            true_negative_counts,
            false_negative_counts,
            precision,
            recall,
            num_thresholds,
        )
        self._write(made, global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, Any]]) -> None:
        """How scalars are drawn together; once, any time.

        Args:
            layout: category -> chart -> ``['Multiline', tags]`` or ``['Margin', [value, lower, upper]]``.
        """
        self._write(summary.custom_scalars(layout), None, None)

    def add_custom_scalars_multilinechart(self, tags: list[str], category: str = "default", title: str = "untitled") -> None:
        """One chart of several curves.

        Args:
            tags: the curves.
            category, title: where the chart is, and its title.
        """
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags: list[str], category: str = "default", title: str = "untitled") -> None:
        """One curve between two others.

        Args:
            tags: the curve, the lower and the upper one.
            category, title: where the chart is, and its title.
        """
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: dict[str, Any] | None = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A mesh, or a cloud of points.

        Args:
            vertices: ``(B, N, 3)``.
            colors: ``(B, N, 3)``, 0 to 255.
            faces: ``(B, M, 3)``, numbers of vertices.
            config_dict: settings of the renderer (three.js).
        """
        self._write(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """What was tried in this run and what came of it, in a folder of their own.

        Args:
            hparam_dict: name -> bool, str, int, float or None.
            metric_dict: name -> number.
            hparam_domain_discrete: name -> the values it may have.
            run_name: the folder; the time by default.
        Raises: TypeError for other arguments.
        """
        made = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as writer:
            for part in made:
                writer._get_file_writer().add_summary(part, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def flush(self) -> None:
        """Write what waits."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write what waits and end the files. Adding more opens new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
