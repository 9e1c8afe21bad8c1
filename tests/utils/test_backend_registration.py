"""A third party's kind of device: its name, module and methods, once in a process; and small functions of utils."""

from __future__ import annotations

import pytest

import flambeau as fb

PROGRAM = """
import types
import {name} as torch

def failure(run):
    try:
        return run()
    except Exception as error:
        return type(error).__name__

utils = torch.utils
found = [failure(lambda: utils.rename_privateuse1_backend("cuda")), failure(lambda: utils.rename_privateuse1_backend(3)),
    utils.rename_privateuse1_backend("foo"), utils.rename_privateuse1_backend("foo"),
    failure(lambda: utils.rename_privateuse1_backend("bar")), torch.device("foo:0"), torch.device("privateuseone").type,
    failure(lambda: torch.device("bar")), torch._C._get_privateuse1_backend_name()]
module = types.ModuleType("foo")
module.is_available, module.device_count, module.current_device = (lambda: True), (lambda: 1), (lambda: 0)
found += [torch._register_device_module("foo", module), failure(lambda: torch._register_device_module("foo", module)), torch.foo is module,
    torch.get_device_module("foo") is module, utils.generate_methods_for_privateuse1_backend(),
    failure(lambda: utils.generate_methods_for_privateuse1_backend())]
places = (torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.nn.utils.rnn.PackedSequence)
found += [[(hasattr(p, "foo"), hasattr(p, "is_foo")) for p in places], torch.ones(1).is_foo]
print(found)
"""


@pytest.mark.oracle
def test_a_renamed_kind_of_device_has_its_name_and_methods_as_in_pytorch(fresh_python, oracle):
    ours, theirs = (fresh_python("-W", "ignore", "-c", PROGRAM.replace("{name}", name)) for name in ("flambeau", "torch"))

    assert ours == theirs


def test_tensors_cannot_be_on_it_without_kernels(fresh_python):
    program = (
        "import flambeau as fb\nfb.utils.rename_privateuse1_backend('foo')\nfb.utils.generate_methods_for_privateuse1_backend()\n"
        "try:\n    fb.ones(1).foo()\nexcept RuntimeError as error:\n    print(error)"
    )

    assert "no support for foo devices" in fresh_python("-c", program)


def test_a_function_is_said_to_live_elsewhere():
    def function():
        """Nothing."""

    fb.utils.set_module(function, "a.b")

    assert function.__module__ == "a.b"
    with pytest.raises(TypeError, match="should be a string"):
        fb.utils.set_module(function, 3)


def test_the_calls_of_this_thread_are_text():
    assert "test_the_calls_of_this_thread_are_text" in fb.utils.get_cpp_backtrace().split("\n")[0]
    assert len(fb.utils.get_cpp_backtrace(1, 2).strip().split("\n")) == 2
