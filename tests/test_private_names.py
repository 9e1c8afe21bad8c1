"""Names that are private to PyTorch and that other packages use all the same."""

from __future__ import annotations

import importlib
import re
import typing
import warnings
import weakref

import pytest

import flambeau as fb
from flambeau import _C, _jit_internal, _streams, _tensor, _tensor_str, _utils
from flambeau._subclasses.fake_tensor import FakeTensorMode, is_fake
from flambeau.fx import graph_module
from flambeau.fx._pytree import register_pytree_flatten_spec, tree_flatten_spec
from flambeau.nn import common_types, grad, parallel
from flambeau.nn.modules import transformer
from flambeau.optim import optimizer
from flambeau.utils import hooks


def test_tensors_are_flattened_into_one_vector_and_back():
    parts = [fb.ones(2, 2), fb.zeros(3)]
    flat = _utils._flatten_dense_tensors(parts)

    again = _utils._unflatten_dense_tensors(flat, parts)

    assert flat.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert [t.shape for t in again] == [(2, 2), (3,)]


def test_tensors_are_grouped_by_dtype_and_bytes():
    tensors = [fb.ones(3), fb.ones(4), fb.ones(2, dtype=fb.int64), fb.ones(1)]
    groups = [[t.numel() for t in group] for group in _utils._take_tensors(tensors, 20)]

    assert groups == [[3], [4, 1], [2]]


def test_devices_have_numbers():
    assert _utils._get_device_index("cuda:1") == 1
    assert _utils._get_device_index(3) == 3
    assert _utils._get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="no cpu"):
        _utils._get_device_index("cpu")
    with pytest.raises(ValueError, match="with an index"):
        _utils._get_device_index("cuda")


def test_an_error_of_a_worker_is_raised_with_its_traceback():
    try:
        {}["lost"]
    except KeyError:
        caught = _utils.ExceptionWrapper(where="in worker 3")

    with pytest.raises(KeyError, match="Caught KeyError in worker 3"):
        caught.reraise()


def test_an_error_that_needs_more_than_a_message_becomes_a_runtime_error():
    class TwoPart(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    try:
        raise TwoPart(1, 2)
    except TwoPart:
        caught = _utils.ExceptionWrapper()

    with pytest.raises(RuntimeError, match="Caught TwoPart in background"):
        caught.reraise()


def test_a_class_has_properties():
    class Model:
        size = 3

        @_utils.classproperty
        def double(cls):  # the class is what it gets
            return cls.size * 2

    assert Model.double == Model().double == 6


def test_rebuilt_tensors_share_the_storage():
    base = fb.arange(6.0)
    view = _utils._rebuild_tensor_v2(base.untyped_storage(), 2, (2,), (1,), True, None)

    base[2] = 9

    assert view.tolist() == [9, 3]
    assert view.requires_grad


def test_calls_are_shown_with_sizes():
    assert _utils.render_call(fb.add, [fb.ones(2), 3], {"alpha": 2}) == "torch.add(tensor([...], size=(2,)), 3, alpha=2)"


def test_arguments_of_to_are_read():
    assert _C._nn._parse_to("cpu", fb.float64) == (fb.device("cpu"), fb.float64, False, None)
    assert _C._nn._parse_to(fb.float16, non_blocking=True) == (None, fb.float16, True, None)


def test_the_compiled_module_answers_what_is_true_here():
    assert _C._get_tracing_state() is None
    assert _C._log_api_usage_once("event") is None
    assert _C._TensorMeta is type(fb.Tensor)
    assert not isinstance(fb.ones(1), _C.Value)
    assert _C._get_default_device() == "cpu"
    assert repr(_C._dispatch_keys(fb.ones(1))) == "DispatchKeySet(CPU, AutogradCPU, ADInplaceOrView)"
    regions = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU) | _C.DispatchKeySet(_C.DispatchKey.AutocastCUDA)
    assert regions.has(_C.DispatchKey.AutocastCPU)
    assert not regions.has(_C.DispatchKey.AutocastXPU)
    assert isinstance(_C.Graph(), fb.Graph)
    with pytest.raises(NotImplementedError, match=r"_C\.ScriptObject"):
        _C.ScriptObject()
    with pytest.raises(AttributeError, match="private to PyTorch"):
        _C._something_else  # noqa: B018  # asking is the test


def test_random_numbers_may_be_set_within_vmap():
    def drawn(x):
        with _C._DisableFuncTorch():
            fb.manual_seed(3)
        return x + fb.rand(2)

    fb.manual_seed(3)
    expected = 1 + fb.rand(2)

    assert fb.equal(fb.func.vmap(drawn, randomness="same")(fb.ones(3, 2))[1], expected)


def test_settings_of_scripts_give_the_value_before():
    before = _C._jit_set_profiling_mode(False)

    assert _C._jit_set_profiling_mode(before) is False
    assert _C._jit_set_autocast_mode(False) is True
    assert _C._jit_set_autocast_mode(True) is False


def test_a_class_that_leaves_overriding_alone_is_a_plain_operand():
    class Quiet:
        __torch_function__ = _C._disabled_torch_function_impl

    assert not fb.overrides.has_torch_function((Quiet(),))


def test_a_class_may_take_back_that_it_answers_operations():
    class Answering(fb.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return "answered"

    class Quiet(Answering):
        __torch_dispatch__ = staticmethod(_C._disabled_torch_dispatch_impl)

    assert fb.Tensor.__torch_dispatch__ is _C._disabled_torch_dispatch_impl
    assert fb.ones(2).as_subclass(Answering) + 1 == "answered"
    assert type(fb.ones(2).as_subclass(Quiet) + 1) is Quiet
    with pytest.raises(RuntimeError, match="must define __torch_dispatch__"):
        fb.Tensor._make_wrapper_subclass(Quiet, (2,))


def test_hooks_that_a_file_lacks_are_warned_of():
    def marked(grad):
        return grad

    x = fb.ones(1, requires_grad=True)
    x.register_hook(hooks.unserializable_hook(marked))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hooks.warn_if_has_hooks(x)
    x.register_hook(lambda grad: grad)

    with pytest.warns(UserWarning, match="will not be serialized"):
        hooks.warn_if_has_hooks(x)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions_are_functions(dims):
    conv = (fb.conv1d, fb.conv2d, fb.conv3d)[dims - 1]
    x = fb.randn(2, 4, *[6] * dims, dtype=fb.float64, requires_grad=True)
    w = fb.randn(6, 2, *[3] * dims, dtype=fb.float64, requires_grad=True)
    out = conv(x, w, stride=2, padding=1, groups=2)
    cotangent = fb.randn_like(out)
    expected = fb.autograd.grad(out, (x, w), cotangent)
    settings = {"stride": 2, "padding": 1, "groups": 2}

    given = getattr(grad, f"conv{dims}d_input")(x.shape, w.detach(), cotangent, **settings)
    taken = getattr(grad, f"conv{dims}d_weight")(x.detach(), w.shape, cotangent, **settings)

    assert fb.equal(given, expected[0])
    assert fb.equal(taken, expected[1])
    assert not given.requires_grad


def test_arguments_of_factories_are_collected():
    assert fb.nn.factory_kwargs(None) == {}
    assert fb.nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": fb.half}}) == {"device": "cpu", "dtype": fb.half}
    with pytest.raises(TypeError, match="'speed'"):
        fb.nn.factory_kwargs({"speed": 1})
    with pytest.raises(TypeError, match="given twice"):
        fb.nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"device": "cpu"}})


def test_sizes_have_types():
    assert common_types._size_2_t == int | tuple[int, int]


def test_data_parallel_without_devices_is_the_module_alone():
    layer = fb.nn.Linear(2, 1)
    wrapped = fb.nn.DataParallel(layer)

    assert wrapped(fb.ones(3, 2)).tolist() == layer(fb.ones(3, 2)).tolist()
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert wrapped.device_ids == []
    assert parallel.data_parallel(layer, fb.ones(1, 2)).shape == (1, 1)


def test_texts_of_tensors_are_put_together():
    assert _tensor_str._tensor_str(fb.ones(2, 2), 3) == "[[1., 1.],\n    [1., 1.]]"
    assert _tensor_str._add_suffixes("tensor(1", ["a=1"], 7, False) == "tensor(1, a=1)"
    assert _tensor_str._str(fb.ones(2), tensor_contents="...") == "tensor(...)"


def test_a_function_is_chosen_by_a_flag():
    chosen = _jit_internal.boolean_dispatch("flag", 1, False, lambda x, flag: "yes", lambda x, flag=False: "no", "m", "f")

    assert (chosen(1), chosen(1, True), chosen(1, flag=True)) == ("no", "yes", "yes")


def test_numbers_that_stand_for_any_are_only_asked_for():
    assert not isinstance(3, fb.SymInt)
    with pytest.raises(AssertionError, match="SymInt: a node is wanted"):
        fb.SymInt(3)
    assert issubclass(fb.OutOfMemoryError, RuntimeError)
    assert fb.newaxis is None


def test_cuda_graphs_are_named_and_refused():
    assert isinstance(fb.cuda.CUDAGraph, type)
    with pytest.raises(NotImplementedError, match=r"cuda\.CUDAGraph is not built yet"):
        fb.cuda.CUDAGraph()
    assert fb.cuda.get_rng_state_all() == [] or fb.cuda.is_available()


def test_functions_and_classes_are_where_pytorch_keeps_them():
    from flambeau import _tensor, functional

    assert functional.einsum is fb.einsum
    assert all(callable(getattr(functional, name)) for name in functional.__all__)
    assert _tensor.Tensor is fb.Tensor


def test_names_that_torchvision_and_timm_import_are_there(monkeypatch, tmp_path):
    from flambeau import _custom_ops, hub
    from flambeau._dynamo.utils import is_compile_supported
    from flambeau.ao.quantization import DeQuantStub, QuantStub
    from flambeau.onnx import symbolic_opset11

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    x = fb.ones(2)

    assert hub._get_torch_home() == str(tmp_path)
    assert hub.HASH_REGEX.search("resnet18-5c106cde.pth").group(1) == "5c106cde"  # type: ignore[union-attr]
    assert _custom_ops.get_ctx is fb.library.get_ctx
    assert is_compile_supported("cpu")
    assert not is_compile_supported("meta")
    assert DeQuantStub()(QuantStub()(x)) is x
    assert QuantStub("by bytes").qconfig == "by bytes"
    assert fb.jit._script_if_tracing(abs)(-1) == 1
    with pytest.raises(AttributeError, match=r"symbolic_opset11\.unsqueeze"):
        symbolic_opset11.unsqueeze  # noqa: B018  # asking is the test
    with pytest.raises(NotImplementedError, match=r"quantization\.quantize_dynamic_jit"):
        fb.ao.quantization.quantize_dynamic_jit(None, {})


def test_the_bar_of_downloads_is_that_of_tqdm():
    tqdm = pytest.importorskip("tqdm")

    assert fb.utils.model_zoo.tqdm is tqdm.tqdm


def test_enumerations_of_pytorchs_c_have_a_name_by_class_and_a_number(oracle):
    for ours, theirs in ((fb.Tag, oracle.Tag), (fb.profiler.ProfilerActivity, oracle.profiler.ProfilerActivity)):
        assert isinstance(ours.name, property)
        assert isinstance(theirs.name, property)
        for name in ours.__members__:
            assert ours[name].name == name
            assert int(ours[name]) == ours[name].value
    assert int(fb.profiler.ProfilerActivity.CUDA) == int(oracle.profiler.ProfilerActivity.CUDA)


def test_custom_operators_have_their_class_where_documentation_places_it():
    from flambeau._library.custom_ops import CustomOpDef, custom_op

    @custom_op("rooms_private::kept", mutates_args=(), device_types="cpu")
    def kept(x: fb.Tensor) -> fb.Tensor:
        return x + 1

    assert type(kept) is CustomOpDef is fb._library.custom_ops.CustomOpDef
    with kept.set_kernel_enabled("cpu", enabled=False):
        assert kept(fb.zeros(1)).item() == 1.0


def test_modules_are_not_rewritten_for_phones_and_the_error_says_what_to_use(oracle):
    from flambeau.utils import mobile_optimizer

    theirs = importlib.import_module("torch.utils.mobile_optimizer")

    script = fb.jit.ScriptModule()
    for rewrite in (mobile_optimizer.optimize_for_mobile, mobile_optimizer.generate_mobile_module_lints):
        with pytest.raises(TypeError, match="ScriptModule is expected"):
            rewrite(fb.nn.Linear(1, 1))
        with pytest.raises(NotImplementedError, match=r"mobile_optimizer\.\w+ is not built yet: "):
            rewrite(script)
    with pytest.raises(NotImplementedError, match="fuse_conv_bn_eval"):
        mobile_optimizer.optimize_for_mobile(script, {mobile_optimizer.MobileOptimizerType.CONV_BN_FUSION})
    assert {name: int(each) for name, each in theirs.MobileOptimizerType.__members__.items()} == {
        each.name: each.value for each in mobile_optimizer.MobileOptimizerType
    }
    assert [(each.name, each.value) for each in theirs.LintCode] == [(each.name, each.value) for each in mobile_optimizer.LintCode]


def test_operators_under_private_names_compute_what_the_public_ones_do():
    x, grad = fb.randn(2, 3, requires_grad=True), fb.randn(2, 3)
    for function, backward in ((fb.softmax, fb._softmax_backward_data), (fb.log_softmax, fb._log_softmax_backward_data)):
        out = function(x, 1)
        fb.testing.assert_close(backward(grad, out, 1, fb.float32), fb.autograd.grad(out, x, grad)[0])
    a, b = fb.randint(-128, 128, (5, 40), dtype=fb.int8), fb.randint(-128, 128, (40, 3), dtype=fb.int8)
    assert fb.equal(fb._int_mm(a, b), a.int() @ b.int())
    large, other = (fb.randint(-128, 128, size, dtype=fb.int8) for size in ((70, 90), (90, 50)))
    assert fb.equal(fb._int_mm(large, other), large.int() @ other.int())
    with pytest.raises(RuntimeError, match=r"_int_mm.*float32"):
        fb._int_mm(a.float(), b)
    assert fb.equal(fb.dsmm(grad, grad.mT), grad @ grad.mT)


def test_rows_are_numbered_or_told_by_where_they_begin():
    rows, columns = fb.tensor([0, 0, 1, 3]), fb.tensor([1, 2, 0, 4])
    begins = fb._convert_indices_from_coo_to_csr(rows, 5)

    assert begins.tolist() == [0, 2, 3, 3, 4, 4]
    assert fb._convert_indices_from_csr_to_coo(begins, columns).tolist() == [rows.tolist(), columns.tolist()]
    small = fb._convert_indices_from_csr_to_coo(begins, columns, out_int32=True, transpose=True)
    assert small.dtype is fb.int32
    assert small.tolist() == [columns.tolist(), rows.tolist()]


def test_a_number_that_is_zero_is_asserted_against_at_once():
    fb._assert_async(fb.tensor(2.0))
    with pytest.raises(RuntimeError, match="too small"):
        fb._assert_async(fb.tensor(0), "too small")


def test_draws_under_private_names_have_the_gradients_of_distributions():
    shape = fb.full((4,), 2.0, requires_grad=True)
    fb._standard_gamma(shape).sum().backward()
    assert (shape.grad > 0).all()
    fb.testing.assert_close(fb._sample_dirichlet(shape).sum(), fb.tensor(1.0))


def test_typed_tensors_of_cuda_are_classes_that_no_tensor_of_the_cpu_is_of():
    assert not isinstance(fb.ones(2), fb.cuda.FloatTensor)
    if not fb.cuda.is_available():
        assert fb.cuda.default_generators == ()
        with pytest.raises(TypeError, match=r"cuda\.LongTensor"):
            fb.cuda.LongTensor(2)


def test_devices_that_are_not_here_are_refused_by_the_tensor():
    x = fb.ones(2)
    with pytest.raises(AssertionError, match="xpu"):
        x.xpu()
    with pytest.raises(NotImplementedError, match="oneDNN"):
        x.to_mkldnn()
    with pytest.raises(RuntimeError, match="Stream, got int"):
        x.record_stream(1)
    with pytest.raises(NotImplementedError, match="cpu"):
        x.record_stream(fb.Stream("cpu"))
    with pytest.raises(RuntimeError, match="mps"):
        fb.backends.mps.is_macos_or_newer(13, 0)


def test_memory_lent_to_a_stream_is_let_go_of_when_the_stream_is_done():
    class Work:
        done = False

        def record_event(self):
            return self

        def query(self):
            return self.done

    lent, stream, memory = _streams._Lent(), Work(), Memory()
    gone = weakref.ref(memory)
    lent.add(memory, stream)
    stream.done = True
    lent.settle()
    assert len(lent.pieces) == 1  # the tensor has it still
    stream.done = False
    del memory
    lent.settle()
    assert gone() is not None  # the stream may read it still
    stream.done = True
    lent.settle()

    assert gone() is None
    assert lent.pieces == []


class Memory:
    """A piece of a device's memory."""


def test_fake_tensors_and_what_stands_for_them_are_told():
    fake = FakeTensorMode().from_tensor(fb.ones(2))

    assert is_fake(fake)
    assert not is_fake(fb.ones(2))
    assert not is_fake(3)


def test_an_optimizer_of_a_package_uses_what_it_knows_of_pytorchs():
    class Descent(fb.optim.Optimizer):
        @optimizer._use_grad_for_differentiable
        def step(self, closure=None):
            recorded.append(fb.is_grad_enabled())

    recorded = []
    weight = fb.nn.Parameter(fb.ones(2))
    for differentiable in (False, True):
        Descent([weight], {"differentiable": differentiable}).step()
    assert recorded == [False, True]
    assert optimizer._default_to_fused_or_foreach([weight], False, True) == (True, False)
    assert optimizer._default_to_fused_or_foreach([weight], True, True) == (False, False)
    lists = [[fb.ones(2), fb.ones(3, dtype=fb.float64), fb.ones(1)], [fb.zeros(2), fb.zeros(3, dtype=fb.float64), fb.zeros(1)]]
    groups = fb.optim.Optimizer._group_tensors_by_device_and_dtype(lists, with_indices=True)
    assert {key[1]: places for key, (_, places) in groups.items()} == {fb.float32: [0, 2], fb.float64: [1]}
    assert [[t.numel() for t in part] for part in groups[fb.device("cpu"), fb.float32][0]] == [[2, 1], [2, 1]]


def test_subclasses_are_put_together_again_with_their_attributes():
    class Named(fb.Tensor):
        pass

    made = _tensor._rebuild_from_type_v2(fb.ones, Named, (2,), {"name_of_it": "a"})

    assert type(made) is Named
    assert made.name_of_it == "a"


def test_containers_of_generated_code_are_taken_apart_as_registered():
    class Pair:
        def __init__(self, a, b):
            self.parts = a, b

    fb.utils._pytree.register_pytree_node(Pair, lambda p: (list(p.parts), None), lambda parts, _: Pair(*parts))
    try:
        spec = fb.utils._pytree.tree_structure(Pair(1, 2))
        register_pytree_flatten_spec(Pair, lambda p, spec: list(p.parts))
        assert tree_flatten_spec(Pair(3, [4, 5]), spec) == [3, [4, 5]]
    finally:
        fb.utils._pytree._deregister_pytree_node(Pair)


def test_words_for_activations_and_plain_initial_values_have_pytorchs_names():
    assert transformer._get_activation_fn("gelu") is fb.nn.functional.gelu
    with pytest.raises(RuntimeError, match="not tanh"):
        transformer._get_activation_fn("tanh")
    assert (fb.nn.init._no_grad_uniform_(fb.empty(9), 2.0, 3.0) >= 2).all()
    assert fb.jit.annotations.Optional is typing.Optional
    assert _C._len_torch_function_stack() == _C._len_torch_dispatch_stack() == 0
    with FakeTensorMode():
        assert _C._len_torch_dispatch_stack() == 1
    assert fb.ByteStorage._from_buffer(b"ab").tolist() == [97, 98]


def test_a_module_of_code_alone_has_the_attributes_it_is_given():
    body = dict(fb.nn.Linear(2, 3).__dict__)
    made = graph_module._CodeOnlyModule(body)

    assert [name for name, _ in made.named_parameters()] == ["weight", "bias"]
    assert graph_module._USER_PRESERVED_ATTRIBUTES_KEY not in made.__dict__


def test_reductions_have_numbers():
    from flambeau.nn import _reduction

    assert [_reduction.get_enum(name) for name in ("none", "mean", "sum")] == [0, 1, 2]
    with pytest.raises(ValueError, match="average"):
        _reduction.get_enum("average")


def test_helpers_of_the_normal_distribution_agree_with_its_matrices():
    from flambeau.distributions import multivariate_normal as normal

    factor, x = fb.tensor([[2.0, 0.0], [1.0, 3.0]]), fb.tensor([[4.0, 5.0], [0.0, 3.0]])
    precision = fb.linalg.inv(factor @ factor.mT)

    distance = normal._batch_mahalanobis(factor, x)

    fb.testing.assert_close(distance, (x * normal._batch_mv(precision, x)).sum(-1))
    fb.testing.assert_close(normal._precision_to_scale_tril(precision), factor)


def test_distributed_tensors_have_their_earlier_module_and_steps_of_trees_their_protocol():
    from flambeau.distributed import _tensor as earlier
    from flambeau.distributed import tensor
    from flambeau.nn.modules.module import _addindent
    from flambeau.utils import _pytree

    assert earlier.DTensor is tensor.DTensor
    assert _addindent("a\n  b", 2) == "a\n    b"
    assert all(hasattr(key, "get") for key in (_pytree.SequenceKey(0), _pytree.MappingKey("a"), _pytree.GetAttrKey("b")))
    assert hasattr(_pytree.KeyEntry, "get")


def test_functions_tags_and_storages_are_found_in_the_compiled_module():
    assert _C._VariableFunctions.add(fb.ones(1), 1).tolist() == [2.0]
    assert _C.Tag is fb.Tag
    assert isinstance(fb.ones(1).untyped_storage(), _C.StorageBase)


def test_an_optional_that_is_none_is_not_unwrapped():
    assert fb.jit._unwrap_optional(0) == 0
    with pytest.raises(AssertionError, match="null optional"):
        fb.jit._unwrap_optional(None)


def test_a_tensor_forgets_its_history_by_the_function_too():
    x = fb.ones(2, requires_grad=True) * 2

    assert fb.detach_(x) is x
    assert not x.requires_grad


def test_modules_of_the_compiler_have_its_functions_and_code_for_its_reader_never_runs():
    from flambeau import _dynamo, compiler

    assert _dynamo.decorators.disable is compiler.disable
    assert _dynamo.external_utils.is_compiling() is False
    assert _dynamo.external_utils.wrap_inline(max)(2, 3) == 3
    assert _dynamo.external_utils.call_hook(lambda grad: None, 4) == 4
    ran = []
    _dynamo.comptime.comptime(lambda context: ran.append("read"), lambda: ran.append("run"))
    assert ran == ["run"]
    assert _dynamo.comptime.comptime.print_value_stack_and_return(5) == 5


def test_errors_of_the_reader_of_scripts_can_be_caught_and_reading_raises():
    frontend = fb.jit.frontend

    assert issubclass(frontend.UnsupportedNodeError, frontend.NotSupportedError)
    assert issubclass(frontend.NotSupportedError, frontend.FrontendError)
    with pytest.raises(NotImplementedError, match=r"jit\.frontend\.get_jit_def"):
        frontend.get_jit_def(max, "max")


def test_functions_of_onnx_are_in_their_earlier_module():
    from flambeau import onnx

    assert onnx.utils.is_in_onnx_export() is False
    assert onnx.utils.export is onnx.export


def test_sparse_tensor_types_of_cuda_have_no_instances_on_the_host():
    x = fb.ones(2, 2).to_sparse()

    assert isinstance(x, fb.sparse.FloatTensor)
    assert not isinstance(x, fb.cuda.sparse.FloatTensor)
    assert fb.cuda.sparse.FloatTensor.__module__ == "torch.cuda.sparse"
    if not fb.cuda.is_available():
        with pytest.raises(TypeError, match="no CUDA device"):
            fb.cuda.sparse.FloatTensor(2, 2)
    with pytest.raises(AttributeError, match="StrangeTensor"):
        fb.cuda.sparse.StrangeTensor  # noqa: B018  # it is refused


def test_a_private_name_that_is_not_here_is_named_by_the_error():
    from flambeau import _C
    from flambeau.distributed import _tensor
    from flambeau.distributed.rpc import api
    from flambeau.utils.data.datapipes import iter as stages

    asked = {
        "torch.distributed.rpc.api._all_gather": lambda: api._all_gather,
        "torch.distributed._tensor.no_such_name": lambda: _tensor.no_such_name,
        "torch._C._distributed_c10d.Reducer": lambda: _C._distributed_c10d.Reducer,
        "torch.utils.data.datapipes.iter.no_such_stage": lambda: stages.no_such_stage,
    }
    for name, ask in asked.items():
        with pytest.raises(AttributeError, match=re.escape(name)):
            ask()


def test_stages_of_streams_are_in_the_modules_that_programs_import_them_from():
    from flambeau.utils.data.datapipes import iter as stages

    assert stages.combinatorics.ShufflerIterDataPipe is stages.Shuffler
    assert stages.combinatorics.SamplerIterDataPipe is stages.Sampler
    assert stages.sharding.ShardingFilterIterDataPipe is stages.ShardingFilter


def test_contexts_of_programs_derive_from_the_one_that_decorates():
    from flambeau.utils._contextlib import _DecoratorContextManager

    class Noted(_DecoratorContextManager):
        def __init__(self, word):
            self.word = word

        def clone(self):
            return type(self)(self.word)

        def __enter__(self):
            notes.append(self.word)

        def __exit__(self, *_):
            notes.append("end")

    notes = []

    @Noted("within")
    def double(x):
        notes.append(x)
        return 2 * x

    @Noted("drawn")
    def three():
        yield 3

    assert double(4) == 8
    assert list(three()) == [3]
    assert notes[:3] == ["within", 4, "end"]
    assert notes[3] == "drawn"
    assert fb.autograd.grad_mode._DecoratorContextManager is _DecoratorContextManager
    assert isinstance(fb.no_grad(), _DecoratorContextManager)


def test_copies_of_a_layer_are_apart():
    layer = fb.nn.Linear(2, 2)
    copies = transformer._get_clones(layer, N=2)

    layer.weight.data.zero_()
    copies[0].bias.data.fill_(5.0)

    assert len(copies) == 2
    assert copies[1].weight.any()
    assert not fb.equal(copies[0].bias, copies[1].bias)


def test_loaders_of_programs_derive_their_fetchers():
    from flambeau.utils.data import _utils as of_data

    class Doubling(of_data.fetch._MapDatasetFetcher):
        def fetch(self, possibly_batched_index):
            return super().fetch(possibly_batched_index) * 2

    assert Doubling([1, 2, 3], True, fb.utils.data.default_collate, False).fetch([0, 2]).tolist() == [2, 6]
    assert of_data.fetch._IterableDatasetFetcher([1, 2], True, list, False).fetch([0, 1]) == [1, 2]
    assert of_data.MP_STATUS_CHECK_INTERVAL > 0


def test_compilers_of_scripts_are_chosen_by_name():
    with fb.jit.fuser("fuser1"), pytest.raises(TypeError, match="built-in function"):
        fb.jit.script(abs)
    with pytest.raises(RuntimeError, match="fuser9"), fb.jit.fuser("fuser9"):
        pass
    assert _jit_internal.Optional[int] == typing.Optional[int]  # noqa: UP045


def test_functions_of_vmap_that_a_package_puts_in_place_are_used(monkeypatch):
    module = importlib.import_module("flambeau._functorch.vmap")

    class Pair:
        def __init__(self, a, b):
            self.parts = a, b

    def process(in_dims, args, func):
        return 3, [0] * len(args), args, None

    def inside(dims, args, level, spec):
        return [Pair(*(module._add_batch_dim(x, d, level) for x in pair.parts)) for pair, d in zip(args, dims, strict=True)]

    def outside(result, out_dims, level, size, func):
        return Pair(*(module._maybe_remove_batch_dim("f", x, level, size, out_dims) for x in result.parts))

    for name, fn in (("_process_batched_inputs", process), ("_create_batched_inputs", inside), ("_unwrap_batched", outside)):
        monkeypatch.setattr(module, name, fn)
    found = fb.vmap(lambda pair: Pair(pair.parts[0].sum(), pair.parts[1] + 1), out_dims=0)(Pair(fb.ones(3, 4), fb.zeros(3)))

    assert found.parts[0].tolist() == [4.0, 4.0, 4.0]
    assert found.parts[1].tolist() == [1.0, 1.0, 1.0]


def test_examples_of_vmap_are_known_from_inside():
    seen = []

    def look(x):
        seen.append((_C._functorch.is_batchedtensor(x), _C._functorch.get_unwrapped(x).shape, _C._functorch.maybe_get_bdim(x),
                     _C._are_functorch_transforms_active()))  # fmt: skip
        return x

    fb.vmap(look, 1)(fb.zeros(3, 4))
    look(fb.zeros(3))

    assert seen == [(True, (3, 4), 1, True), (False, (3,), -1, False)]
    assert fb.func.grad(lambda x: x * _C._are_functorch_transforms_active())(fb.ones(())).item() == 1
    assert not _C._functorch.is_legacy_batchedtensor(fb.zeros(1))


def test_tensors_of_a_module_are_swapped_by_name():
    from flambeau.nn.utils._named_member_accessor import swap_tensor

    layer, other = fb.nn.Linear(2, 2), fb.ones(2, 2)
    layer.size = 3
    weight = layer.weight

    assert swap_tensor(layer, "weight", other) is weight
    assert layer.weight is other
    assert layer(fb.ones(2)).tolist() == (layer.bias + 2).tolist()
    assert swap_tensor(layer, "weight", weight) is other
    assert swap_tensor(layer, "fresh", other, allow_missing=True) is None
    assert layer.fresh is other
    wrong = ("size", other, TypeError), ("weight", 3, TypeError), ("zz", other, AttributeError), ("a.b", other, KeyError)
    for name, value, error in wrong:
        with pytest.raises(error):
            swap_tensor(layer, name, value)


def test_flags_of_backends_can_be_set_in_and_out_of_the_region_for_it():
    before = fb.backends.cudnn.benchmark
    with getattr(fb.backends, "__allow_nonbracketed_mutation")():  # a class would have the name changed
        fb.backends.cudnn.benchmark = not before

    assert fb.backends.cudnn.benchmark is not before
    assert not fb.backends.flags_frozen()
    fb.backends.cudnn.benchmark = before


def test_columns_of_tensors_are_grouped_by_device_and_dtype():
    from flambeau.utils._foreach_utils import _group_tensors_by_device_and_dtype

    a, b, c = fb.ones(1), fb.ones(2, dtype=fb.float64), fb.ones(3)
    groups = _group_tensors_by_device_and_dtype([[a, b, c], [None, b, a]], with_indices=True)

    assert groups == {(a.device, fb.float32): ([[a, c], [None, a]], [0, 2]), (a.device, fb.float64): ([[b], [b]], [1])}
    assert _group_tensors_by_device_and_dtype([[a]])[a.device, fb.float32][1] == []


def test_what_packages_take_from_loaders_transforms_and_backward_is_there(oracle):
    from torch.utils.data._utils.worker import _generate_state as theirs

    from flambeau.distributions import kl, transforms
    from flambeau.nn.modules.module import _global_parameter_registration_hooks, register_module_parameter_registration_hook
    from flambeau.utils.data._utils import collate, worker
    from flambeau.utils.data.dataloader import _collate_fn_t

    assert worker._generate_state(12345678901234, 3) == theirs(12345678901234, 3)
    assert worker._worker_info is None
    assert collate.np_str_obj_array_pattern.search("<U3")
    assert typing.get_args(_collate_fn_t)[1] is typing.Any
    assert issubclass(fb.futures.Future, fb.Future)
    assert issubclass(fb.UntypedStorage, fb.StorageBase)
    assert (fb.distributions.Normal, fb.distributions.Normal) in kl._KL_REGISTRY
    assert transforms._clipped_sigmoid(fb.tensor([-1000.0, 0.0])).tolist() == [fb.finfo(fb.float32).tiny, 0.5]
    handle = register_module_parameter_registration_hook(lambda *_: None)
    assert len(_global_parameter_registration_hooks) == 1
    handle.remove()
    assert fb._guards.active_fake_mode() is None
    with FakeTensorMode() as mode:
        assert fb._guards.active_fake_mode() is mode


def test_a_callback_of_the_engine_runs_when_backward_has_ended():
    order = []
    x = fb.ones(2, requires_grad=True)
    x.register_hook(lambda grad: fb.autograd.Variable._execution_engine.queue_callback(lambda: order.append(x.grad.tolist())))
    (x * 2).sum().backward()

    assert order == [[2.0, 2.0]]
    with pytest.raises(RuntimeError, match="during backward"):
        fb.autograd.Variable._execution_engine.queue_callback(order.clear)
