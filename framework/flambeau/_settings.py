"""Settings of the whole process, and small questions about values, that live at the top of the package."""

from __future__ import annotations

from typing import Any

from . import _state, _warn, dtypes
from .devices import CPU, device
from .ops import _promote
from .ops._parameters import input_of
from .tensor import Tensor

# -- threads -------------------------------------------------------------------------------------------------------------


def get_num_threads() -> int:
    """Threads that kernels run on."""
    from flambeau_kernels.engine import get_num_threads as get

    return get()


def set_num_threads(n: int) -> None:
    """Let kernels run on `n` threads. Raises: RuntimeError unless `n` is positive."""
    if not isinstance(n, int):
        raise TypeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    from flambeau_kernels.engine import set_num_threads as set_

    _state.note_python()
    set_(n)


_interop = 1


def get_num_interop_threads() -> int:
    """Threads for parallelism between operations; operations run one after another here."""
    return _interop


def set_num_interop_threads(n: int) -> None:
    """Accepted for compatibility. Raises: RuntimeError unless `n` is positive."""
    global _interop
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop = n


# -- determinism and precision ---------------------------------------------------------------------------------------------

_deterministic, _warn_only = False, False
_precision = "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for the same bits in every run. On the CPU they always are; with this, whatever the number of threads or rows.

    A row of a matrix product then has the same bits whether it is computed alone or in a batch. Memory that `empty`,
    `empty_like`, `resize_` and the like hand out is filled with nan, or the largest integer, so that a program that reads it
    does the same in every run, unless `flambeau.utils.deterministic.fill_uninitialized_memory` is set to False.

    Raises: TypeError if `mode` is no bool.
    """
    if not isinstance(mode, bool):
        raise TypeError(f"use_deterministic_algorithms: mode must be a bool, got {type(mode).__name__}")
    global _deterministic, _warn_only
    from flambeau_kernels.cpu.products import matmul

    if bool(mode) is not _deterministic:
        matmul.set_invariant(mode)
    _deterministic, _warn_only = bool(mode), bool(warn_only)
    _state.fill_empty(deterministic=_deterministic)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether deterministic algorithms were asked for."""
    return _deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether a missing deterministic algorithm only warns."""
    return _deterministic and _warn_only


def alert_not_deterministic(caller: str) -> None:
    """Refuse `caller`, or warn, where deterministic algorithms were asked for and PyTorch has none for it.

    Ours gives the same bits in every run nevertheless. A program that goes by the error finds it here too.
    """
    if not _deterministic:
        return
    message = f"{caller} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
    if _warn_only:
        _warn.warn(f"{message}, warn_only=True)'.")
        return
    raise RuntimeError(
        f"{message})'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's "
        "acceptable for your application."
    )


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """'default' (0), 'warn' (1) or 'error' (2)."""
    names = {"default": 0, "warn": 1, "error": 2}
    if debug_mode in names:
        debug_mode = names[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """0 for default, 1 for warn, 2 for error."""
    return 0 if not _deterministic else 1 if _warn_only else 2


def set_float32_matmul_precision(precision: str) -> None:
    """'highest', 'high' or 'medium'; float32 products are always exact to float32 on the CPU."""
    global _precision
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"invalid float32 matmul precision {precision!r}; choose 'highest', 'high' or 'medium'")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """The last setting of `set_float32_matmul_precision`."""
    return _precision


def set_flush_denormal(mode: bool) -> bool:
    """Returns False: kernels keep denormal numbers, and cannot be told to flush them."""
    return False


def set_warn_always(b: bool) -> None:
    """Whether warnings given once per process are given every time."""
    _warn.always = bool(b)


def is_warn_always_enabled() -> bool:
    """The last setting of `set_warn_always`."""
    return _warn.always


# -- defaults ------------------------------------------------------------------------------------------------------------


def set_default_device(d: Any) -> None:
    """Make new tensors on `d` unless told otherwise; None for the CPU."""
    _state.set_default_device(None if d is None else device(d))


def get_default_device() -> device:
    """Where new tensors go unless told otherwise."""
    return _state.default_device() or CPU


def set_default_tensor_type(t: Any) -> None:
    """Deprecated in PyTorch: 'torch.FloatTensor' and the like set the default dtype."""
    from .ops.creation.convert import _TYPE_NAMES

    _warn.warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives."
    )
    name = t if isinstance(t, str) else getattr(t, "__name__", str(t))
    found = _TYPE_NAMES.get(name.rpartition(".")[2])
    if found is None:
        raise TypeError(f"invalid type object: {t!r}; only floating-point types are supported as the default type")
    dtypes.set_default_dtype(found)


# -- questions -----------------------------------------------------------------------------------------------------------


def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_storage(obj: Any) -> bool:
    """Whether `obj` is a storage."""
    from .storage import TypedStorage, UntypedStorage

    return isinstance(obj, (TypedStorage, UntypedStorage))


def _of_tensor(name: str, answer: Any, doc: str) -> Any:
    def ask(input: Any = ..., **named: Any) -> Any:
        if named or input is ...:
            input = input_of(name, input, named)
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return answer(input)

    ask.__name__, ask.__doc__ = name, doc
    return ask


is_complex = _of_tensor("is_complex", Tensor.is_complex, "Whether `input` has a complex dtype.")
is_floating_point = _of_tensor("is_floating_point", Tensor.is_floating_point, "Whether `input` has a floating dtype.")
is_signed = _of_tensor("is_signed", Tensor.is_signed, "Whether the dtype of `input` has negative values.")
is_inference = _of_tensor("is_inference", Tensor.is_inference, "Whether `input` was made in `inference_mode`.")
is_conj = _of_tensor("is_conj", Tensor.is_conj, "Whether conjugation of `input` is deferred; it never is.")
is_neg = _of_tensor("is_neg", Tensor.is_neg, "Whether negation of `input` is deferred; it never is.")
numel = _of_tensor("numel", Tensor.numel, "Number of elements of `input`.")


is_nonzero = _of_tensor(
    "is_nonzero", Tensor.is_nonzero,
    "Whether the single element of `input` is not zero. Raises: RuntimeError unless there is exactly one.",
)  # fmt: skip


def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype an arithmetic operation on both would give."""
    for at, x in enumerate((tensor1, tensor2), 1):
        if not isinstance(x, (Tensor, *_promote.NUMBERS)):
            raise TypeError(f"result_type(): argument 'tensor{at}' must be Tensor or Number, not {type(x).__name__}")
    return _promote.result_type((tensor1, tensor2))


def typename(obj: Any) -> str:
    """The name of the type of `obj`; tensors give their dtype's class name."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = type(obj)
    module = "" if kind.__module__ in ("builtins", None) else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def _assert(condition: Any, message: str) -> None:
    """An assertion as a function. Raises: AssertionError with `message` unless `condition`."""
    if not condition:
        raise AssertionError(message)


def from_file(filename: str, shared: bool = False, size: int = 0, *, dtype: Any = None, **options: Any) -> Tensor:
    """`size` elements of the file `filename`, mapped, as a tensor; writes reach the file only if `shared`.
    """
    from .storage import UntypedStorage

    d = dtype or dtypes.get_default_dtype()
    made = UntypedStorage.from_file(filename, shared, size * d.itemsize)
    from .ops.creation.create import empty

    return empty(0, dtype=d, **options).set_(made, 0, (size,))


def compiled_with_cxx11_abi() -> bool:
    """False: there is no C++ part that could have an ABI."""
    return False
