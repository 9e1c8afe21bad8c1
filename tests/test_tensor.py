"""The Tensor and Python: operators, conversions, iteration, copies, pickles, flags."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from comparing import disagreements


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes in Python can be buffers from 3.12 on")
def test_a_tensor_is_a_buffer() -> None:
    x = fb.arange(4.0)
    memoryview(x)[0] = 9.0

    assert x[0].item() == 9.0


def test_a_tensor_is_seen_as_an_array() -> None:
    x = fb.arange(4.0).view(2, 2)
    x[0, 0] = 9.0

    assert np.asarray(x)[0, 0] == 9.0
    assert np.asarray(x).ctypes.data == x.data_ptr()


def test_numpy_returns_the_memory_itself() -> None:
    x = fb.zeros(3)
    x.numpy()[1] = 4.0

    assert x.tolist() == [0.0, 4.0, 0.0]


def test_arrays_after_a_tensor_and_numpy_numbers_are_operands() -> None:
    x = fb.tensor([1.0, 2.0])

    assert (x + np.array([1.0, 1.0], np.float32)).tolist() == [2.0, 3.0]
    assert (np.float32(3) - x).tolist() == [2.0, 1.0]
    assert isinstance(np.float64(2) * x, fb.Tensor)
    assert (np.array([1.0, 2.0]) / x).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%", "**", "@", "<", ">=", "==", "&", "|", "<<", "+=", "*=", "/="])
@pytest.mark.parametrize("turned", [False, True])
def test_operators_answer_and_refuse_arrays_of_numpy_as_pytorch(oracle: Any, operator: str, turned: bool) -> None:
    operands = {
        "floats": "torch.ones(2), np.ones(2)", "integers": "torch.ones(2, dtype=torch.int64), np.ones(2, np.int64)",
        "history": "torch.ones(2, requires_grad=True), np.ones(2)", "bools": "torch.ones(2, dtype=torch.bool), np.ones(2, bool)",
    }  # fmt: skip
    if operator in ("&", "|", "*", "*="):             # PyTorch's answer of uint8 depends on whether numpy has warned of it before
        del operands["bools"]
    order = "a, x" if turned else "x, a"
    operation = f"x {operator} a; x" if "=" in operator[1:] and operator not in ("==", ">=") else f"x {operator} a"
    programs = [f"{order} = {two}; {operation}" for two in operands.values()]

    assert not disagreements(oracle, "\n".join(programs))


def test_arrays_of_numpy_are_refused_in_place_however_often_the_operation_has_run() -> None:
    x, y, array = fb.ones(3), fb.ones(3), np.ones(3, np.float32)

    for _ in range(1000):  # a builtin has been taught by then
        x.mul_(y)

    with pytest.raises(TypeError, match=r"not numpy\.ndarray"):
        x.mul_(array)


def test_operators_give_way_to_an_operand_that_answers_itself() -> None:
    class Loud:
        def __radd__(self, other: Any) -> str:
            return "mine"

        def __lt__(self, other: Any) -> str:
            return "less"

    assert fb.ones(2) + Loud() == "mine"
    assert (fb.ones(2) > Loud()) == "less"
    with pytest.raises(TypeError, match="unsupported operand"):
        fb.ones(2) - Loud()


def test_hash_is_identity_and_bool_needs_one_element() -> None:
    x, y = fb.ones(1), fb.ones(1)

    assert len({x, y, x}) == 2
    assert bool(x)
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(fb.ones(2))


def test_int_names_the_shape_it_cannot_convert() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        int(fb.ones(2, 3))


def test_pickles_keep_dtype_layout_flags_and_attributes() -> None:
    x = fb.ones(2, 3, dtype=fb.bfloat16).t()
    x.requires_grad_()
    x.note = "kept"
    y = pickle.loads(pickle.dumps(x))

    assert (y.dtype, y.shape, y.stride(), y.requires_grad, y.note) == (
        fb.bfloat16,
        (3, 2),
        (1, 3),
        True,
        "kept",
    )


def test_deepcopy_keeps_memory_shared_among_the_copies() -> None:
    x = fb.arange(4.0)
    copied, part = copy.deepcopy((x, x[1:]))
    part[0] = 9.0

    assert copied.tolist() == [0.0, 9.0, 2.0, 3.0]
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_deepcopy_of_a_computed_tensor_is_refused() -> None:
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(fb.ones(2, requires_grad=True) * 2)


def test_a_shallow_copy_shares_memory_and_not_history() -> None:
    x = fb.ones(2, requires_grad=True)
    y = copy.copy(x)

    assert y is not x
    assert y.data_ptr() == x.data_ptr()
    assert y.is_leaf
    assert y.requires_grad


def test_reading_grad_of_a_computed_tensor_warns() -> None:
    y = fb.ones(2, requires_grad=True) * 2
    with pytest.warns(UserWarning, match="not a leaf"):
        assert y.grad is None


def test_elements_may_be_changed_by_python_functions() -> None:
    x = fb.arange(4.0).view(2, 2).t()
    x.apply_(lambda v: v * 10)
    x.map_(fb.ones(2, 2), lambda a, b: a - b)

    assert x.tolist() == [[-1.0, 19.0], [9.0, 29.0]]


def test_casting_complex_to_real_warns_once() -> None:
    fb.set_warn_always(True)
    with pytest.warns(UserWarning, match="imaginary"):
        made = fb.tensor([1 + 2j]).to(fb.float32)
    fb.set_warn_always(False)

    assert made.tolist() == [1.0]


def test_operators_take_numbers_arrays_and_leave_foreign_types_to_others(oracle: Any) -> None:
    programs = """
    torch.empty_strided((2, 3), (1, 2)).stride()
    torch.tensor([[1, 2], [3, 4]]).tolist()
    np.array(torch.ones(2))
    np.asarray(torch.ones(2), dtype=np.int32)
    np.array([torch.tensor(1.0), torch.tensor(2.0)])
    np.sum(torch.ones(3))
    np.sin(torch.zeros(2))
    np.add(torch.ones(2), 1)
    torch.ones(2) + np.ones(2)
    torch.ones(2) * np.ones(2, dtype=np.float32)
    np.float64(2) * torch.ones(2)
    torch.ones(2) * np.float64(2)
    np.float32(2) * torch.ones(2, dtype=torch.float64)
    np.int64(2) * torch.ones(2)
    torch.ones(2) * np.int64(2)
    torch.arange(3) * np.float32(2)
    np.float32(2) * torch.arange(3)
    np.float64(2) - torch.ones(2)
    np.float64(2) / torch.ones(2)
    np.float64(2) ** torch.ones(2)
    np.float64(2) > torch.ones(2)
    torch.ones(2) == np.ones(2)
    torch.ones(2) == None
    torch.ones(2) == 'a'
    torch.ones(2) < None
    torch.ones(2) < 'a'
    torch.ones(2) + 'a'
    torch.ones(2) + None
    'a' + torch.ones(2)
    [1, 2] + torch.ones(2)
    torch.ones(2) + [1, 2]
    torch.ones(2) - [1, 2]
    torch.ones(2) * (1, 2)
    torch.ones(2) @ [1, 2]
    x = type('A', (), {'__radd__': lambda s, o: 'radd'})(); torch.ones(2) + x
    x = type('A', (), {'__rmul__': lambda s, o: 'rmul'})(); torch.ones(2) * x
    x = type('A', (), {'__rmatmul__': lambda s, o: 'rmatmul'})(); torch.ones(2) @ x
    x = type('A', (), {'__rtruediv__': lambda s, o: 'r'})(); torch.ones(2) / x
    x = type('A', (), {'__rfloordiv__': lambda s, o: 'r'})(); torch.ones(2) // x
    x = type('A', (), {'__rmod__': lambda s, o: 'r'})(); torch.ones(2) % x
    x = type('A', (), {'__rpow__': lambda s, o: 'r'})(); torch.ones(2) ** x
    x = type('A', (), {'__rsub__': lambda s, o: 'r'})(); torch.ones(2) - x
    x = type('A', (), {'__rand__': lambda s, o: 'r'})(); torch.ones(2) & x
    x = type('A', (), {'__ror__': lambda s, o: 'r'})(); torch.ones(2) | x
    x = type('A', (), {'__rlshift__': lambda s, o: 'r'})(); torch.ones(2) << x
    bool(torch.tensor([1, 2]))
    'a' in torch.arange(5)
    torch.tensor(np.array([10000000000.0]), dtype=torch.int32).dtype
    torch.ones(2).to(None)
    x = torch.zeros(3, requires_grad=True); y = x * 1; y.fill_(torch.tensor(2.0, requires_grad=True)); y.grad_fn is not None
    """

    assert not disagreements(oracle, programs)


def test_operators_in_place_keep_the_tensor(oracle: Any) -> None:
    programs = """
    x = torch.ones(2); x += 1; x
    x = torch.ones(2); x -= torch.ones(2); x
    x = torch.ones(2); x *= 3; x
    x = torch.ones(2); x /= 2; x
    x = torch.ones(2) * 7; x //= 2; x
    x = torch.ones(2) * 7; x %= 4; x
    x = torch.ones(2) * 7; x **= 2; x
    x = torch.tensor([6]); x &= 3; x
    x = torch.tensor([6]); x |= 1; x
    x = torch.tensor([6]); x ^= 1; x
    x = torch.tensor([6]); x <<= 1; x
    x = torch.tensor([6]); x >>= 1; x
    x = torch.ones(2, 2); x @= torch.ones(2, 2); x
    x = torch.tensor([6]); x /= 2; x
    x = torch.tensor([6]); x += 1.5; x
    x = torch.ones(2); x += torch.ones(3)
    x = torch.ones(2); x += torch.ones(2, 2)
    """

    assert not disagreements(oracle, programs)


def test_numbers_are_checked_when_they_are_stored(oracle: Any) -> None:
    programs = r"""
    torch.frombuffer(bytearray(b'\x01\x02\x03\x04'), dtype=torch.uint8)
    torch.full((2,), float('nan'), dtype=torch.int32).shape
    torch.ones(2).type(torch.int32)
    torch.ones(1, dtype=torch.uint8).fill_(300)
    torch.ones(1, dtype=torch.uint8).fill_(-1)
    torch.ones(1, dtype=torch.uint8).fill_(1.5)
    torch.ones(1, dtype=torch.int32).fill_(1j)
    torch.ones(1, dtype=torch.int32).fill_(10000000000.0)
    torch.ones(1, dtype=torch.uint8).fill_(torch.tensor(300))
    x = torch.ones(2, dtype=torch.uint8); x[0] = 300; x
    x = torch.ones(2, dtype=torch.uint8); x[0] = -1; x
    x = torch.ones(2, dtype=torch.uint8); x[0] = 1.5; x
    x = torch.ones(2, dtype=torch.int32); x[0] = 10000000000.0; x
    x = torch.ones(2, dtype=torch.int32); x[0] = float('nan'); x.dtype
    x = torch.ones(2, dtype=torch.int32); x[0] = 1j; x
    x = torch.ones(2, dtype=torch.uint8); x[:] = 256; x
    x = torch.ones(2, dtype=torch.uint8); x[x > 0] = 256; x
    x = torch.ones(2, dtype=torch.uint8); x[[0]] = 256; x
    torch.ones(2, dtype=torch.uint8) + 300
    torch.ones(2, dtype=torch.uint8) + -1
    torch.ones(2, dtype=torch.uint8) * 256
    torch.ones(2, dtype=torch.uint8) * -256
    torch.ones(2, dtype=torch.uint8).add_(300)
    torch.ones(2, dtype=torch.int8) + 200
    torch.ones(2, dtype=torch.uint8) == 256
    torch.ones(2, dtype=torch.uint8) < 300
    torch.zeros(2, dtype=torch.uint8) == -256
    torch.ones(2, dtype=torch.int32) + 2 ** 40
    torch.ones(2, dtype=torch.uint8).clamp(max=300)
    torch.ones(2, dtype=torch.uint8).masked_fill(torch.tensor([True, False]), 300)
    torch.where(torch.tensor([True, False]), torch.ones(2, dtype=torch.uint8), 300)
    torch.ones(2).to(torch.ones(1, dtype=torch.int32))
    x = torch.ones(2); x.data = torch.zeros(3, dtype=torch.int32); x
    x = torch.ones(2, requires_grad=True); x.data = torch.zeros(3, dtype=torch.int32); x
    x = torch.ones(2, dtype=torch.int32); x.requires_grad_()
    torch.ones(2).type_as(torch.ones(1, dtype=torch.int32))
    torch.ones(2, dtype=torch.int32).clamp(max=2 ** 40)
    torch.ones(2, dtype=torch.uint8).clamp(min=-1)
    torch.ones(2, dtype=torch.uint8).masked_fill(torch.tensor([True, False]), -1)
    torch.ones(2, dtype=torch.uint8).masked_fill(torch.tensor([True, False]), 1.5)
    torch.ones(2, dtype=torch.uint8).index_fill(0, torch.tensor([0]), 300)
    torch.ones(2, dtype=torch.uint8).scatter(0, torch.tensor([0]), 300)
    torch.ones(2, dtype=torch.uint8).eq(300)
    torch.ones(2, dtype=torch.uint8).maximum(torch.tensor(300))
    x = torch.zeros(3, dtype=torch.int32); x.fill_(2.7)
    x = torch.arange(4.0); x.map_(torch.ones(4, dtype=torch.int32), lambda a, b: a + b)
    x = torch.ones(4); y = torch.ones(4, dtype=torch.int32); x.add_(y); x
    """

    assert not disagreements(oracle, programs)


def test_python_conversions_need_one_element(oracle: Any) -> None:
    programs = """
    [v for v in torch.arange(3)]
    [v for v in torch.tensor(3)]
    list(torch.zeros(2, 0))
    abs(torch.tensor([-5]))
    round(torch.tensor([1.5]))
    round(torch.tensor([1.25]), 1)
    divmod(torch.tensor([7]), torch.tensor([2]))
    import math; math.floor(torch.tensor(1.5))
    import math; math.ceil(torch.tensor(1.5))
    import math; math.trunc(torch.tensor(1.5))
    import math; math.sqrt(torch.tensor(4.0))
    pow(torch.tensor([2]), 3)
    pow(torch.tensor([2]), 3, 5)
    bool(torch.tensor([]))
    bool(torch.tensor([[0.0]]))
    bool(torch.tensor(float('nan')))
    int(torch.tensor(2.7))
    int(torch.tensor([2.7, 1]))
    float(torch.tensor(2))
    float(torch.tensor(2j))
    complex(torch.tensor(2.0))
    int(torch.tensor(2j))
    [10, 20, 30][torch.tensor(1)]
    [10, 20, 30][torch.tensor([1])]
    [10, 20, 30][torch.tensor(1.0)]
    [10, 20, 30][torch.tensor(True)]
    list(range(torch.tensor(3)))
    format(torch.tensor(3.14159), '.2f')
    f'{torch.tensor(3):d}'
    f'{torch.tensor([1.0, 2.0])}'
    f'{torch.tensor([1.0, 2.0]):.2f}'
    f'{torch.tensor([1.0])}'
    f'{torch.tensor([1.0]):.2f}'
    str(torch.tensor(3.0))
    '%.2f' % torch.tensor(3.14159)
    len(torch.ones(3, 2))
    len(torch.tensor(1))
    3 in torch.arange(5)
    7 in torch.arange(5)
    memoryview(torch.ones(2)).tolist()
    """

    assert not disagreements(oracle, programs)


def test_pickles_and_copies_keep_what_belongs_to_a_tensor(oracle: Any) -> None:
    programs = """
    x = torch.arange(6.0).view(2, 3); y = pickle.loads(pickle.dumps(x)); y
    x = torch.arange(6.0).view(2, 3).t(); y = pickle.loads(pickle.dumps(x)); y
    x = torch.ones(2, requires_grad=True); y = pickle.loads(pickle.dumps(x)); y
    x = torch.ones(2, requires_grad=True) * 2; y = pickle.loads(pickle.dumps(x)); y
    x = torch.ones(2); a, b = pickle.loads(pickle.dumps((x, x))); a is b
    x = torch.arange(4.0); a, b = pickle.loads(pickle.dumps((x, x[1:]))); b[0] = 9; a
    x = torch.arange(4.0); a, b = copy.deepcopy((x, x[1:])); b[0] = 9; (a, b, x)
    x = torch.arange(4.0, requires_grad=True); copy.deepcopy(x * 2)
    x = torch.arange(4.0, requires_grad=True); x.grad = torch.ones(4); copy.deepcopy(x).grad
    x = torch.arange(4.0); copy.deepcopy(x.t()).stride()
    copy.deepcopy(torch.strided) is torch.strided
    """

    assert not disagreements(oracle, programs)


def test_flags_of_autograd_are_checked(oracle: Any) -> None:
    programs = """
    torch.ones(2, requires_grad=True).item()
    torch.ones(1, requires_grad=True).item()
    torch.ones(2, requires_grad=True).tolist()
    torch.ones(2, requires_grad=True).numpy()
    torch.ones(2, requires_grad=True).numpy(force=True)
    np.asarray(torch.ones(2, requires_grad=True))
    torch.ones(2, requires_grad=True).__dlpack__()
    x = torch.ones(2); x.data = torch.zeros(3); x
    x = torch.ones(2); x.data = 5
    x = torch.ones(2, requires_grad=True); x.data.add_(1); (x, x._version)
    x = torch.ones(2, requires_grad=True); y = x.detach(); y.add_(1); (x, x._version, y._version)
    x = torch.ones(2); x.requires_grad = True; x.requires_grad
    x = torch.ones(2); x.requires_grad = 1
    x = torch.ones(2); x.requires_grad_(1)
    x = torch.ones(2, requires_grad=True); y = x * 2; y.requires_grad_(False)
    x = torch.ones(2, requires_grad=True); y = x * 2; y.requires_grad = False
    x = torch.ones(2); x.grad = torch.ones(3)
    x = torch.ones(2); x.grad = torch.ones(2, dtype=torch.float64)
    x = torch.ones(2); x.grad = 5
    x = torch.ones(2); x.grad = x
    x = torch.ones(2); x.grad = torch.ones(2); x.grad
    x = torch.ones(2); del x.grad; x.grad
    x = torch.ones(2, requires_grad=True); y = x * 2; y.grad
    x = torch.ones(2, requires_grad=True); x.detach_(); x
    x = torch.ones(2, requires_grad=True); y = (x * 2)[0]; y.detach_()
    x = torch.ones(2, requires_grad=True); y = x * 2; y.detach_(); y
    x = torch.ones(2); y = x[0]; y.detach_(); y
    x = torch.zeros(3, requires_grad=True); x.fill_(1)
    x = torch.zeros(3, requires_grad=True); y = x * 1; y.fill_(1); y.sum().backward(); x.grad
    x = torch.zeros(3, requires_grad=True); y = x * 1; y[1:].fill_(1); y.sum().backward(); x.grad
    x = torch.arange(4.0, requires_grad=True); x.apply_(lambda v: v * 2)
    x = torch.zeros(3, requires_grad=True); x.add_(1)
    x = torch.zeros(3, requires_grad=True); y = x.exp(); y.add_(1); y.sum().backward()
    x = torch.zeros(3, requires_grad=True); y = x * x; x.data.add_(1); y.sum().backward(); x.grad
    """

    assert not disagreements(oracle, programs)


def test_other_operators_and_methods_agree(oracle: Any) -> None:
    programs = r"""
    torch.tensor(torch.ones(2, 3).t())
    torch.as_tensor(np.arange(3)).dtype
    torch.from_numpy(np.arange(6).reshape(2, 3).T)
    torch.from_numpy(np.arange(6)[::-1])
    torch.from_numpy(np.arange(6)[::2])
    torch.frombuffer(bytearray(b'\x01\x02\x03\x04'), dtype=torch.int16, count=1, offset=2)
    torch.frombuffer(bytearray(b'\x01\x02\x03'), dtype=torch.int16)
    torch.frombuffer(b'\x01\x02', dtype=torch.int16)
    torch.frombuffer(bytearray(b''), dtype=torch.int16)
    torch.frombuffer(bytearray(b'\x01\x02'), dtype=torch.int16, offset=2)
    torch.ones_like(torch.ones(2, 3).t())
    torch.zeros_like(torch.ones(4, 6)[::2, ::3])
    torch.empty_strided((2, 3), (1,)).stride()
    torch.empty_permuted((2, 3, 4), (2, 0, 1)).stride()
    torch.Tensor(2, 3).shape
    torch.LongTensor(3).shape
    torch.HalfTensor([1]).dtype
    torch.empty((0, 3)).stride()
    torch.empty((3, 0)).stride()
    torch.ones(2, 3).stride(-1)
    torch.ones(2, 3).stride(5)
    torch.ones(2, 3).size(-1)
    torch.ones(2, 3).size(2)
    torch.ones(()).size(0)
    torch.ones(2, 3).t().is_contiguous()
    torch.ones(4, 6)[::2, ::3].clone().stride()
    torch.ones(4, 6).t()[1:].clone().stride()
    torch.ones(4, 6)[1:, 2:].storage_offset()
    torch.ones(4, 6)[1:, 2:].stride()
    torch.ones(4, 6)[4:].stride()
    torch.tensor(3).item()
    torch.tensor([3]).item()
    torch.tensor([3, 4]).item()
    torch.tensor([True]).item()
    torch.tensor([1 + 2j]).item()
    torch.tensor([0.1]).item()
    torch.ones(2, 3).t().numpy()
    x = torch.zeros(3); n = x.numpy(); n[0] = 5; x
    n = np.zeros(3); x = torch.from_numpy(n); x[0] = 5; n
    np.asarray(torch.ones(2))
    np.asarray(torch.ones(2, 3).t())
    x = type('A', (), {'__gt__': lambda s, o: 'r'})(); torch.ones(2) < x
    x = type('A', (), {'__eq__': lambda s, o: 'r'})(); torch.ones(2) == x
    1 - torch.ones(2)
    1 / torch.tensor([2])
    7 // torch.tensor([2])
    7 % torch.tensor([4])
    2 ** torch.tensor([3])
    True & torch.tensor([True])
    1 << torch.tensor([3])
    5 >> torch.tensor([1])
    6 ^ torch.tensor([3])
    6 | torch.tensor([3])
    -torch.tensor([True])
    ~torch.tensor([True])
    ~torch.tensor([5])
    +torch.tensor([5.0])
    +torch.tensor([True])
    torch.tensor(2) < 3 < torch.tensor(4)
    1 < torch.ones(2) < 2
    (torch.ones(1).type(), torch.ones(1, dtype=torch.int64).type())
    torch.ones(2).type('torch.DoubleTensor')
    torch.is_nonzero(torch.tensor([0.0]))
    torch.numel(torch.ones(2, 3))
    torch.ones(1).fill_(1e+39)
    torch.ones(1).fill_(torch.tensor(300.0))
    x = torch.ones(2, dtype=torch.bool); x[0] = 5; x
    x = torch.ones(2, dtype=torch.float16); x[0] = 1000000.0; x
    torch.ones(2) + 2 ** 40
    torch.ones(2, dtype=torch.float16) + 1000000.0
    torch.ones(2, dtype=torch.int64) + 2 ** 63
    torch.ones(2, dtype=torch.bool) + 2
    torch.ones(2, dtype=torch.bool) * True
    torch.ones(2, dtype=torch.bool) - True
    torch.rand(size=(2,)).shape
    torch.randint(3, size=(2,)).dtype
    torch.ones(2).to(float)
    torch.ones(2).to(int)
    torch.ones(2).type(float)
    torch.ones(2).sum(dtype=int)
    torch.ones(2).to(dtype=bool)
    torch.ones_like(torch.ones(2), dtype=int)
    torch.ones(2).to('cpu')
    torch.ones(2).to('cpu', torch.float64)
    torch.ones(2).to(torch.float64, True)
    torch.ones(2).to(0)
    torch.ones(2).to()
    x = torch.ones(2); x.to(x.device) is x
    x = np.arange(3.0); torch.from_dlpack(x)
    x = torch.arange(3.0); np.from_dlpack(x)
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(torch.arange(3)))
    x = torch.ones(2, 3); x.T.shape
    x = torch.ones(2, 3, 4); x.T.shape
    x = torch.ones(2, 3, 4); x.mT.shape
    x = torch.ones(3); x.mT.shape
    x = torch.ones(2, 3, 4); x.H.shape
    x = torch.ones(2, 3); (x.nbytes, x.itemsize, x.element_size(), x.nelement(), x.ndimension())
    x = torch.ones(2); x.add_(1); x[0] = 2; x.t_(); x._version
    x = torch.ones(2); y = x[:1]; y.add_(1); (x._version, y._version)
    x = torch.ones(2); x.shape = (2,)
    x = torch.arange(4.0); x.storage_type()
    x = torch.arange(4.0); x.dim_order()
    x = torch.arange(4.0); x.apply_(lambda v: v * 2)
    x = torch.arange(4.0); x.map_(torch.ones(4), lambda a, b: a + b)
    x = torch.arange(4.0); x.map2_(torch.ones(4), torch.ones(4), lambda a, b, c: a + b + c)
    x = torch.arange(4.0); x.narrow_copy(0, 1, 2)
    torch.arange(4.0).module_load(torch.ones(4))
    torch.ones(2).is_same_size(torch.ones(2))
    torch.ones(2).pin_memory()
    torch.ones(2).is_pinned()
    torch.ones(2).add(1e+39)
    torch.ones(2).clamp(max=1e+39)
    torch.where(torch.tensor([True, False]), torch.ones(2), 1e+39)
    torch.remainder(torch.tensor([-0.0, 0.0, 4.0, -4.0, 4.0, -4.0]), torch.tensor([2.0, -2.0, 2.0, 2.0, -2.0, -2.0]))
    torch.fmod(torch.tensor([-0.0, 0.0, 4.0, -4.0, 4.0, -4.0]), torch.tensor([2.0, -2.0, 2.0, 2.0, -2.0, -2.0]))
    torch.remainder(torch.tensor([4.0, -4.0], dtype=torch.float16), torch.tensor([-2.0, 2.0], dtype=torch.float16))
    torch.pow(torch.tensor([1 + 2j, 3 - 1j]), 2)
    torch.pow(torch.tensor([1 + 2j, 0j]), -1)
    torch.pow(torch.tensor([1 + 2j, 0j]), -2)
    torch.pow(torch.tensor([1 + 2j, 0j]), 0)
    torch.pow(torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128), 3)
    torch.pow(2, torch.tensor([1 + 2j, 0j]))
    torch.pow(torch.tensor([complex(float('nan'), 0), complex(float('inf'), float('nan'))]), 2)
    torch.FloatTensor(2, 3).shape
    torch.ones(2).type(torch.DoubleTensor)
    torch.ones(2).type(torch.FloatTensor).dtype
    x = torch.zeros(3); x[1:].fill_(2); (x, x._version)
    x = torch.arange(4.0).view(2, 2).t(); x.apply_(lambda v: v * 2)
    x = torch.arange(4); x.apply_(lambda v: v * 2)
    x = torch.arange(4.0); x.map_(torch.ones(1), lambda a, b: a + b)
    torch.arange(4.0).module_load(torch.ones(4), assign=True)
    torch.ones(2, 3) @ torch.ones(4, 5)
    F.linear(torch.ones(2, 3), torch.ones(4, 5))
    torch.ones(3, 4).t().contiguous().stride()
    torch.atleast_2d(torch.ones(3)).shape
    """

    assert not disagreements(oracle, programs)


def test_list_forms_named_results_and_symbolic_helpers_agree(oracle: Any) -> None:
    programs = """
    torch._foreach_abs([torch.tensor([-1.0, 2.0])])
    x = [torch.tensor([-1.0, 2.0])]; torch._foreach_abs_(x); x
    torch._foreach_add([torch.ones(2), torch.ones(1)], 1)
    torch._foreach_add([torch.ones(2), torch.ones(1)], [1.0, 2.0])
    torch._foreach_add([torch.ones(2)], [torch.ones(2)], alpha=3)
    torch._foreach_abs([])
    torch._foreach_abs(torch.ones(2))
    torch._foreach_add([torch.ones(2)], [torch.ones(2)] * 2)
    torch._foreach_mul([torch.ones(2)], 3)
    torch._foreach_zero_([torch.ones(2)])
    torch._foreach_norm([torch.ones(4)])
    torch._foreach_addcdiv([torch.ones(4)], [torch.ones(4)], [torch.ones(4) * 2], value=0.5)
    torch._foreach_lerp([torch.ones(4)], [torch.zeros(4)], 0.5)
    torch._foreach_pow(2.0, [torch.ones(4)])
    torch._foreach_sqrt([torch.ones(4)])
    torch.return_types.max is type(torch.max(torch.ones(2, 2), 0))
    torch.return_types.sort is type(torch.sort(torch.ones(2, 2), 0))
    torch.return_types.topk is type(torch.topk(torch.ones(2, 2), 1))
    torch.return_types.frexp.__name__
    torch._assert(False, 'msg')
    torch._assert(True, 'msg')
    """

    assert not disagreements(oracle, programs)


def test_view_works_out_the_shape_of_a_tensor_without_memory():
    t = fb.empty(4, 5, device="meta")

    assert t.view(-1, 2).shape == (10, 2)
    with pytest.raises(RuntimeError, match=r"(?s)view size is not compatible.*wanted size \[20\]"):
        t.T.view(20)


def test_a_number_is_assigned_to_the_real_part() -> None:
    x = fb.full((2,), 1 + 2j)

    x.real = 0
    assert x.tolist() == [2j, 2j]
    x.imag = np.float64(3.5)
    assert x.tolist() == [3.5j, 3.5j]
    x.real = fb.tensor([1.0, 2.0])
    assert x.tolist() == [1 + 3.5j, 2 + 3.5j]

    floats = fb.ones(2)
    floats.real = 4
    assert floats.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="overflow"):
        floats.real = 1j
    with pytest.raises(TypeError):
        floats.real = [1, 2]


def test_the_gradient_of_a_real_part_that_was_assigned_is_zero() -> None:
    leaf = fb.full((2,), 1 + 2j, requires_grad=True)
    x = leaf * 1
    x.real = 0
    x.imag.sum().backward()

    assert leaf.grad.tolist() == [1j, 1j]


def test_reversed_gives_a_tensor() -> None:
    x = fb.arange(6.0).reshape(2, 3).requires_grad_()
    back = reversed(x)
    (back * fb.tensor([[1.0], [2.0]])).sum().backward()

    assert back.tolist() == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]
    assert x.grad.tolist() == [[2.0] * 3, [1.0] * 3]
    assert reversed(fb.tensor(3)).item() == 3


def test_a_tensor_of_the_cpu_has_no_cuda_array_interface():
    class Memory:
        __cuda_array_interface__ = {"version": 3}

    x = fb.ones(2)
    assert not hasattr(x, "__cuda_array_interface__")
    x._array = Memory()
    assert x.__cuda_array_interface__ == {"version": 3}


@pytest.mark.parametrize("name", ["__add__", "__radd__", "__mul__", "__rmul__", "__and__", "__rand__", "__ror__", "__rxor__", "__eq__"])
def test_an_operator_of_tensors_called_on_a_number_is_refused(name):
    with pytest.raises(TypeError, match=f"{name}.*no Tensor: int"):
        getattr(fb.Tensor, name)(2, fb.tensor([1, 2, 3]))


def test_the_reflected_division_called_on_a_number_lacks_its_reciprocal():
    with pytest.raises(AttributeError, match="no reciprocal: int"):
        fb.Tensor.__rdiv__(2, fb.tensor([1, 2, 3]))


def test_the_reflected_division_of_two_tensors_is_a_product_with_the_reciprocal():
    made = fb.tensor([4, 2]).__rdiv__(fb.tensor(3.0, dtype=fb.float16))

    assert made.dtype == fb.float32
    assert made.tolist() == [0.75, 1.5]


@pytest.mark.parametrize("name", ["__add__", "__radd__", "__rmul__", "__rand__", "__ror__", "__rxor__", "__rpow__", "__eq__"])
def test_operators_refuse_to_be_those_of_two_numbers(name: str) -> None:
    with pytest.raises(TypeError, match=r"must be Tensor, not int|no Tensor: int"):
        getattr(fb.Tensor, name)(2, 3)
