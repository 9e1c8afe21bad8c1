"""What is logged, as arrays and encoded pictures, films and sounds."""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np

from flambeau import Tensor

__all__ = ["as_array", "as_number", "encode_gif", "encode_png", "encode_wav", "grid_of", "picture", "picture_of_figure"]


def as_array(value: Any) -> np.ndarray:
    """A tensor, an array or a number as an array of at least one dimension.

    Raises: NotImplementedError for anything else.
    """
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype.itemsize == 2 and value.dtype.is_floating_point else value).numpy()
    if isinstance(value, (int, float, complex, np.number, np.ndarray)):
        return np.atleast_1d(np.asarray(value))
    raise NotImplementedError(f"Got {type(value)}, but numpy array or torch tensor are expected.")


def as_number(value: Any) -> float:
    """The one element of `value`, which may be the text of a number.

    Raises: AssertionError if there are more; ValueError for another text; NotImplementedError for what is no number at all.
    """
    if isinstance(value, str):
        return float(value)
    array = as_array(value)
    if array.size != 1:
        raise AssertionError(f"add_scalar: scalar_value must have one element, got shape {array.shape}")
    return float(array.reshape(()))


def picture(array: np.ndarray, dataformats: str) -> np.ndarray:
    """The image of `array`, uint8 in HWC order with 3 channels or 4; a batch of images becomes a grid.

    Args:
        array: uint8 of 0 to 255, or numbers of 0 to 1.
        dataformats: what each dimension is: a string of C, H, W and, for batches, N.
    Raises: AssertionError for other letters or another number of dimensions.
    """
    letters = dataformats.upper()
    if len(set(letters)) != len(letters) or set(letters) - set("NCHW") or array.ndim != len(letters):
        raise AssertionError(f"image: dataformats {dataformats!r} does not fit an array of shape {array.shape}")
    if letters not in ("HW", "WH") and not {"H", "W"} <= set(letters):
        raise AssertionError(f"image: dataformats {dataformats!r} names no H and W")
    array = array if array.dtype == np.uint8 else np.clip(array * 255.0, 0, 255).astype(np.uint8)
    if "N" in letters:
        order = [letters.index(c) for c in "NCHW" if c in letters]
        array = array.transpose(order)
        return grid_of(array if "C" in letters else array[:, None]).transpose(1, 2, 0)
    array = array.transpose([letters.index(c) for c in "HWC" if c in letters])
    if array.ndim == 2:
        array = array[:, :, None]
    return np.concatenate([array] * 3, 2) if array.shape[2] == 1 else array


def grid_of(images: np.ndarray, columns: int = 8) -> np.ndarray:
    """A batch ``(N, C, H, W)`` as one image ``(3 or 4, rows * H, columns * W)``, up to `columns` side by side."""
    n, channels, height, width = images.shape
    if channels == 1:
        images, channels = np.repeat(images, 3, axis=1), 3
    columns = min(n, columns)
    rows = -(-n // columns)
    made = np.zeros((channels, height * rows, width * columns), images.dtype)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        made[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = image
    return made


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images need the package pillow: pip install pillow") from error
    return Image


def encode_png(image: np.ndarray, rescale: float = 1.0, boxes: np.ndarray | None = None, labels: Any = None) -> bytes:
    """`image`, uint8 in HWC order, as PNG, with `boxes` of ``(left, top, right, bottom)`` in pixels drawn in red."""
    made = _pillow().fromarray(image)
    if boxes is not None:
        from PIL import ImageDraw

        draw = ImageDraw.Draw(made)
        for number, box in enumerate(np.reshape(boxes, (-1, 4)).tolist()):
            draw.rectangle(box, outline="red", width=1)
            if labels is not None:
                draw.text((box[0] + 2, box[1] + 1), str(labels[number]), fill="red")
    if rescale != 1:
        made = made.resize((int(made.width * rescale), int(made.height * rescale)))
    file = io.BytesIO()
    made.save(file, format="PNG")
    return file.getvalue()


def encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """`frames`, uint8 of ``(T, H, W, C)``, as an animated GIF."""
    image = _pillow()
    pictures = [image.fromarray(frame if frame.shape[-1] > 1 else frame[..., 0]) for frame in frames]
    file = io.BytesIO()
    pictures[0].save(file, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / fps), loop=0)
    return file.getvalue()


def encode_wav(sound: np.ndarray, rate: int) -> bytes:
    """`sound`, numbers of -1 to 1, ``(1, L)`` or ``(L,)``, as 16-bit WAV of one channel."""
    samples = (np.clip(sound.reshape(-1), -1, 1) * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(rate)
        written.writeframes(samples.tobytes())
    return file.getvalue()


def picture_of_figure(figure: Any, close: bool) -> np.ndarray:
    """A matplotlib figure as pixels, uint8 in CHW order."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].transpose(2, 0, 1)
    if close:
        import matplotlib.pyplot as plt

        plt.close(figure)
    return pixels
