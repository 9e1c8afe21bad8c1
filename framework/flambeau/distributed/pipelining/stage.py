"""A stage: a part of a model, and what it exchanges with the stages before and after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fb

from ... import nn
from ...autograd._halves import SecondHalf, backward_to_inputs
from .. import distributed_c10d as c10d
from ._channel import BACKWARD, FORWARD, channel_of
from ._utils import PipeInfo, TensorMeta, check_metas, metas_of

__all__ = ["PipelineStage", "build_stage"]


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class _Running:
    """A microbatch between its forward and the end of its backward."""

    __slots__ = ("inputs", "later", "outputs")

    def __init__(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.later: SecondHalf | Callable[[], None] | None = None


class PipelineStage:
    """One part of a model whose parts run one after the other, each stage's outputs being the next one's arguments.

    Shapes and dtypes are learned from the first microbatch that passes; they have to stay the same from then on.

    Args:
        submodule: this part of the model.
        stage_index: its place, from 0.
        num_stages: how many there are.
        device: where it computes.
        input_args: tensors, on any device, with the shapes and dtypes of one microbatch's inputs; checked against what comes.
        output_args: the same of outputs.
        output_grads, input_grads: taken for compatibility; gradients have the shapes of what they belong to.
        group: the ranks of the pipeline; None for all.
        dw_builder: called after each backward; what it returns is called to compute the gradients of weights, for
            modules whose own backward leaves those out.
        get_mesh: not built; must be None.
    Raises: ValueError for a stage that is out of range; RuntimeError for more ranks than stages.
    """

    def __init__(
        self,
        submodule: nn.Module,
        stage_index: int,
        num_stages: int,
        device: Any,
        input_args: Any = None,
        output_args: Any = None,
        output_grads: Any = None,
        input_grads: Any = None,
        group: Any = None,
        dw_builder: Callable[[], Callable[..., None]] | None = None,
        get_mesh: Any = None,
    ) -> None:
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if get_mesh is not None:
            raise NotImplementedError("PipelineStage: get_mesh is not built yet; stages exchange plain tensors")
        self.submod = submodule
        self.stage_index, self.num_stages = stage_index, num_stages
        self.device = fb.device(device)
        self.group = c10d._default() if group is None else group
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if self.group_size > num_stages:
            raise RuntimeError(f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}")
        self.dw_builder = dw_builder
        self.stage_index_to_group_rank = {at: at % self.group_size for at in range(num_stages)}
        self._channel = channel_of(self.group)
        # A stage cut out of a graph takes from the one before it what the program gave as keywords.
        self._takes_keywords = True
        # What the program says, and what was seen with and without backward, of one microbatch.
        self._promised = {"input": _promised(input_args), "output": _promised(output_args)}
        self._seen: dict[tuple[str, bool], list[TensorMeta]] = {}
        self.clear_runtime_states()

    def clear_runtime_states(self) -> None:
        """Forget the microbatches of the last step."""
        self._running: dict[int, _Running] = {}
        self._handed: dict[tuple[int, int], list[Any]] = {}
        self._incoming: list[TensorMeta] | None = None
        self._outgoing: list[TensorMeta] | None = None
        self._backwards = 0
        self.output_chunks: list[Any] = []

    @property
    def is_first(self) -> bool:
        """Whether no stage comes before it."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether no stage comes after it."""
        return self.stage_index == self.num_stages - 1

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"stage {self.stage_index}"

    def _begin_step(self, peers: dict[int, PipelineStage], microbatches: int, backward: bool, keep_outputs: bool) -> None:
        """A step begins; `peers` are the stages of this rank."""
        self.clear_runtime_states()
        self._peers, self._microbatches = peers, microbatches
        self._backward, self._keep_outputs = backward, keep_outputs

    # Forward

    def forward_one_chunk(self, microbatch: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Receive the inputs of a microbatch, compute, and send the outputs on.

        Args:
            microbatch: its number.
            args: the inputs, for the first stage; others take what the stage before them sends.
            kwargs: keyword arguments of this rank.
        Returns: what the module returned.
        Raises: PipeliningShapeError for shapes or dtypes that differ from those of the first microbatch.
        """
        inputs = tuple(args) if self.is_first else self._received(microbatch)
        if self.is_first:
            tensors = [value for value in inputs if isinstance(value, fb.Tensor)]
            self._agree("input", metas_of(f"{self.name}: input", tensors), microbatch, grads=False)
        output = self._computed(inputs, kwargs if self._takes_keywords or self.is_first else {})
        outputs = _tuple(output)
        if not self.is_last:
            metas = metas_of(f"{self.name}: output", outputs)
            self._agree("output", metas, microbatch)
            self._pass_on(microbatch, outputs, metas)
        elif self._promised["output"] is not None:
            check_metas(
                f"{self.name}: output", self._promised["output"], metas_of(f"{self.name}: output", outputs),
                "output_args says", False,
            )  # fmt: skip
        if self._backward:
            self._running[microbatch] = _Running(inputs, outputs)
        if self.is_last and self._keep_outputs:
            self.output_chunks.append(output)
        return output

    def _computed(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._syncs() is None:
            return self.submod(*inputs, **kwargs)
        # Its gradients are exchanged once, in the last backward of the step.
        with self.submod.no_sync():
            return self.submod(*inputs, **kwargs)

    def _syncs(self) -> Any:
        """The module as one that exchanges gradients in backward, or None."""
        from ...nn.parallel import DistributedDataParallel

        return self.submod if isinstance(self.submod, DistributedDataParallel) else None

    def _in_pieces(self) -> list[Any]:
        """The modules whose parameters `fully_shard` has spread."""
        from ..fsdp import FSDPModule

        return [module for module in self.submod.modules() if isinstance(module, FSDPModule)]

    def _agree(self, what: str, metas: list[TensorMeta], microbatch: int, grads: bool = True) -> None:
        where = f"{self.name}: microbatch {microbatch}: {what}"
        promised = self._promised[what]
        if promised is not None:
            check_metas(where, promised, metas, f"{what}_args says", False)
        seen = self._seen.setdefault((what, self._backward), metas)
        check_metas(where, seen, metas, "the first microbatch had", grads)

    def _pass_on(self, microbatch: int, outputs: tuple[Any, ...], metas: list[TensorMeta]) -> None:
        following = self.stage_index + 1
        if following in self._peers:
            self._peers[following]._handed[FORWARD, microbatch] = [metas, [x.detach() for x in outputs]]
            return
        peer = self.stage_index_to_group_rank[following]
        if self._outgoing is None:
            self._outgoing = metas
            self._channel.send_object([list(meta) for meta in metas], peer, FORWARD, following, microbatch)
        self._channel.send(outputs, peer, FORWARD, following, microbatch)

    def _received(self, microbatch: int) -> tuple[Any, ...]:
        before = self.stage_index - 1
        if before in self._peers:
            metas, tensors = self._handed.pop((FORWARD, microbatch))
        else:
            peer = self.stage_index_to_group_rank[before]
            if self._incoming is None:
                described = self._channel.receive_object(peer, FORWARD, self.stage_index, microbatch)
                self._incoming = [TensorMeta(tuple(shape), dtype, grad) for shape, dtype, grad in described]
            metas = self._incoming
            tensors = [fb.empty(meta.shape, dtype=_dtype(meta.dtype), device=self.device) for meta in metas]
            self._channel.receive(tensors, peer, FORWARD, self.stage_index, microbatch)
        self._agree("input", metas, microbatch)
        return tuple(
            tensor.requires_grad_() if meta.requires_grad and self._backward else tensor
            for meta, tensor in zip(metas, tensors, strict=True)
        )

    # Backward

    def backward_one_chunk(self, microbatch: int, loss: Any = None, full_backward: bool = True, scale: float = 1.0) -> None:
        """Receive the gradients of a microbatch's outputs, go backward, and send those of its inputs.

        Args:
            microbatch: its number.
            loss: a scalar, for the last stage.
            full_backward: False leaves the gradients of weights to `backward_weight_one_chunk`.
            scale: the gradient of `loss`.
        """
        running = self._running[microbatch]
        outputs, grads = self._roots(running, microbatch, loss, scale)
        inputs = [x for x in running.inputs if isinstance(x, fb.Tensor) and x.requires_grad and not self.is_first]
        if full_backward or self.dw_builder is not None:
            if full_backward and self.dw_builder is None:
                self._before_last(running.outputs)
            found = _backward(outputs, grads, inputs)
            running.later = None if self.dw_builder is None else self.dw_builder()
            if full_backward:
                if running.later is not None:
                    self.backward_weight_one_chunk(microbatch)
                self._running.pop(microbatch, None)
        elif outputs:
            found, running.later = backward_to_inputs(outputs, grads, inputs)
        else:
            found = [None] * len(inputs)
        if not self.is_first:
            self._pass_back(microbatch, inputs, found)

    def backward_weight_one_chunk(self, microbatch: int) -> None:
        """Add the gradients of weights that `backward_one_chunk` with ``full_backward=False`` left."""
        running = self._running.pop(microbatch)
        self._before_last(running.outputs)
        if isinstance(running.later, SecondHalf):
            with contextlib.ExitStack() as contexts:
                for module in self._in_pieces():
                    contexts.enter_context(module._fsdp_state.group.weights_backward())
                running.later.run()
        elif running.later is not None:
            running.later()

    def _before_last(self, outputs: tuple[Any, ...]) -> None:
        self._backwards += 1
        last = self._backwards == self._microbatches
        ddp = self._syncs()
        if ddp is not None and last:
            ddp._prepare(outputs)
        for module in self._in_pieces():
            module.set_requires_gradient_sync(last, recurse=False)
            module.set_is_last_backward(last)

    def _roots(self, running: _Running, microbatch: int, loss: Any, scale: float) -> tuple[list[Any], list[Any]]:
        if self.is_last:
            if loss.dim() or not loss.requires_grad:
                raise RuntimeError(
                    f"{self.name}: loss_fn must return a scalar that requires grad, got one of shape {tuple(loss.shape)}"
                    f"{'' if loss.requires_grad else ' that does not require grad'}"
                )
            return [loss], [fb.full_like(loss, scale, requires_grad=False)]
        outputs = [x for x in running.outputs if x.requires_grad]
        following = self.stage_index + 1
        if following in self._peers:
            return outputs, self._handed.pop((BACKWARD, microbatch))
        grads = [fb.empty_like(x, requires_grad=False, memory_format=fb.contiguous_format) for x in outputs]
        self._channel.receive(grads, self.stage_index_to_group_rank[following], BACKWARD, self.stage_index, microbatch)
        return outputs, grads

    def _pass_back(self, microbatch: int, inputs: list[Any], found: Sequence[Any]) -> None:
        grads = [fb.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, found, strict=True)]
        before = self.stage_index - 1
        if before in self._peers:
            self._peers[before]._handed[BACKWARD, microbatch] = grads
        else:
            self._channel.send(grads, self.stage_index_to_group_rank[before], BACKWARD, before, microbatch)


def _backward(outputs: list[Any], grads: list[Any], inputs: list[Any]) -> list[Any]:
    """Go backward to all leaves; the gradients of `inputs`, which are leaves of this stage alone."""
    if outputs:
        fb.autograd.backward(outputs, grads)
    found = [x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    return found


def _promised(args: Any) -> list[TensorMeta] | None:
    return None if args is None else metas_of("PipelineStage: example", _tuple(args))


def _dtype(name: str) -> Any:
    return getattr(fb, name.rpartition(".")[2])


def build_stage(stage_module: nn.Module, stage_index: int, pipe_info: PipeInfo, device: Any, group: Any = None) -> PipelineStage:
    """The stage that runs `stage_module`, a part of a `Pipe` or something around it. Keyword arguments go to the first stage.

    Args:
        stage_module: the module.
        stage_index: its place in the pipeline.
        pipe_info: what `Pipe.info` returns.
        device: where it computes.
        group: the ranks of the pipeline; None for all.
    """
    stage = PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)
    stage._takes_keywords = False
    return stage


