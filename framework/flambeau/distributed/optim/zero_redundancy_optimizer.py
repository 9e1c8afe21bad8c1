"""An optimizer whose states are divided among the ranks.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", stage 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fb

from ...optim import Optimizer
from .. import distributed_c10d as c10d
from ..algorithms.join import Join, Joinable, JoinHook

__all__ = ["ZeroRedundancyOptimizer"]


class _ShadowStep(JoinHook):
    """The step of a rank that has run out of inputs."""

    def __init__(self, zero: ZeroRedundancyOptimizer) -> None:
        self.zero = zero

    def main_hook(self) -> None:
        self.zero.step()


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Each rank steps its share of the parameters and sends them to the others, so that each holds the states of its share only.

    Parameters go, the largest first, to the rank that has fewest elements so far. After a step all ranks have the parameters
    that one optimizer for all of them would give.

    Args:
        params: parameters or groups of them, the same on all ranks, of one dtype.
        optimizer_class: the class of the optimizer of each rank.
        process_group: the ranks; None for all.
        parameters_as_bucket_view: make the parameters of a rank views into one buffer, which is sent as a whole.
        overlap_with_ddp: the steps run in the backward of DistributedDataParallel, which needs a hook of `ddp_zero_hook`. The
            first two iterations, three with a static graph, do no step.
        **defaults: of `optimizer_class`.
    Raises: TypeError or ValueError for parameters that do not fit; NotImplementedError for several groups with overlap.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        listed = _checked(params)
        Joinable.__init__(self)
        self.process_group = c10d._default() if process_group is None else process_group
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parameters_as_bucket_view = parameters_as_bucket_view and not overlap_with_ddp
        self._overlap_with_ddp = overlap_with_ddp
        self._optimizer_class = optimizer_class
        self._owner: dict[int, int] = {}
        self._load = [0] * self.world_size
        self._buffers: list[Any] = []
        self._states: list[dict[str, Any]] = []
        self._made = False
        Optimizer.__init__(self, listed, defaults)
        if overlap_with_ddp and len(self.param_groups) > 1:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer with overlap_with_ddp=True is built for a single group of parameters, got "
                f"{len(self.param_groups)}"
            )
        self._made = True
        if not overlap_with_ddp:
            for group in self.param_groups:
                self._share_out(group["params"])
            self._make_local()

    # Who has what

    def _share_out(self, params: Iterable[Any]) -> None:
        for param in sorted(params, key=lambda p: p.numel(), reverse=True):
            self._give(param, min(range(self.world_size), key=self._load.__getitem__))

    def _give(self, param: Any, rank: int) -> None:
        self._owner[id(param)] = rank
        self._load[rank] += param.numel()

    def _of(self, group: dict[str, Any], rank: int) -> list[Any]:
        return [param for param in group["params"] if self._owner[id(param)] == rank]

    def _make_local(self) -> None:
        groups = [{**_options(group), "params": self._of(group, self.rank)} for group in self.param_groups]
        self.optim: Any = self._optimizer_class(groups, **self.defaults)
        self._take_options(self.optim.param_groups, self.param_groups)
        self._make_buffers()

    def _make_buffers(self) -> None:
        self._buffers = []
        for rank in range(self.world_size):
            params = [param for group in self.param_groups for param in self._of(group, rank)]
            if not self.parameters_as_bucket_view or not params:
                self._buffers.append([param.detach() for param in params])
                continue
            flat = fb.cat([param.detach().reshape(-1) for param in params])
            for param, part in zip(params, flat.split([param.numel() for param in params]), strict=True):
                param.data = part.view(param.shape)
            self._buffers.append([flat])

    @staticmethod
    def _take_options(source: list[dict[str, Any]], target: list[dict[str, Any]]) -> None:
        """Programs and schedulers set options of this optimizer, and steps those of the one inside."""
        for given, taken in zip(source, target, strict=True):
            taken.update(_options(given))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize further parameters; all ranks call it.

        Args:
            param_group: 'params' and any options.
        Raises: TypeError, ValueError: as for the constructor; NotImplementedError with overlap.
        """
        if self._made and self._overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer.add_param_group: with overlap_with_ddp=True one group of parameters is built"
            )
        super().add_param_group(param_group)
        if self._made:
            group = self.param_groups[-1]
            self._share_out(group["params"])
            self.optim.add_param_group({**_options(group), "params": self._of(group, self.rank)})
            self._take_options(self.optim.param_groups, self.param_groups)
            self._make_buffers()

    # Steps

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Step the parameters of this rank, and exchange all.

        Args:
            closure: computes the loss again, for optimizers that need it.
            **kwargs: given to the optimizer of this rank.
        Returns: what that returns.
        """
        if self._overlap_with_ddp:
            warnings.warn("`step()` should not be included in the training loop when `overlap_with_ddp=True`", stacklevel=2)
            return None
        Join.notify_join_context(self)
        self._take_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        self._take_options(self.optim.param_groups, self.param_groups)
        for rank, tensors in enumerate(self._buffers):
            if tensors:
                self.process_group.broadcast(tensors, rank, False)
        return loss

    # With DistributedDataParallel

    def _begin_overlap(self, buckets: list[list[Any]], shard: bool) -> None:
        """Give whole buckets, or if `shard` their parameters, to ranks."""
        mine = {id(param) for param in self.param_groups[0]["params"]}
        for params in buckets:
            held = [param for param in params if id(param) in mine]
            if shard:
                self._share_out(held)
            else:
                rank = min(range(self.world_size), key=self._load.__getitem__)
                for param in held:
                    self._give(param, rank)
        # What DistributedDataParallel does not exchange is stepped by nobody.
        missing = mine - set(self._owner)
        if missing:
            raise ValueError(
                f"ZeroRedundancyOptimizer: {len(missing)} of {len(mine)} parameters are in no bucket of DistributedDataParallel"
            )
        self._make_local()

    def _step_bucket(self, params: list[Any], grads: list[Any]) -> list[Any]:
        """Step those of `params` that this rank has, and send them; the `Work` of what is sent."""
        self._take_options(self.param_groups, self.optim.param_groups)
        every = [param for group in self.optim.param_groups for param in group["params"]]
        given = {id(param): grad for param, grad in zip(params, grads, strict=True)}
        before = [param.grad for param in every]
        for param in every:
            param.grad = given.get(id(param))
        try:
            if any(id(param) in given for param in every):
                self.optim.step()
        finally:
            for param, grad in zip(every, before, strict=True):
                param.grad = grad
        works = []
        for rank in range(self.world_size):
            tensors = [param.detach() for param in params if self._owner.get(id(param)) == rank]
            if tensors:
                works.append(self.process_group.broadcast(tensors, rank, True))
        return works

    def _need_local(self) -> None:
        if not hasattr(self, "optim"):
            raise RuntimeError(
                "This method should not be called until this ZeroRedundancyOptimizer instance has been fully initialized: with "
                "overlap_with_ddp=True that is after the first iterations"
            )

    # State

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the states of all ranks to rank `to`, for its `state_dict`; all ranks call it.

        Raises: RuntimeError before the first step with `overlap_with_ddp`.
        """
        self._need_local()
        self._take_options(self.param_groups, self.optim.param_groups)
        here = c10d.get_group_rank(self.process_group, to) == self.rank
        gathered: Any = [None] * self.world_size if here else None
        c10d.gather_object(self.optim.state_dict(), gathered, to, self.process_group)
        self._states = gathered if here else []

    def _places(self, rank: int) -> list[int]:
        """Of each parameter of `rank`, in its optimizer's order, the place among all."""
        every = [param for group in self.param_groups for param in group["params"]]
        return [at for at, param in enumerate(every) if self._owner[id(param)] == rank]

    def state_dict(self) -> dict[str, Any]:
        """The state that one optimizer of all parameters would have, on the rank that `consolidate_state_dict` named.

        Raises: RuntimeError on other ranks, and before that.
        """
        self._need_local()
        if not self._states:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{c10d.get_global_rank(self.process_group, self.rank)})` on all ranks beforehand if you meant to save the global state."
            )
        found = super().state_dict()
        state = {}
        for rank, local in enumerate(self._states):
            places = self._places(rank)
            state.update({places[at]: value for at, value in local["state"].items()})
        found["state"] = dict(sorted(state.items()))
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over this rank's share of a state of all parameters.

        Raises: RuntimeError before the first step with `overlap_with_ddp`; ValueError if groups differ.
        """
        self._need_local()
        super().load_state_dict({**state_dict, "state": {}})
        places = self._places(self.rank)
        packed = self.optim.state_dict()
        groups = [
            {**_options(given), "params": own["params"]}
            for given, own in zip(state_dict["param_groups"], packed["param_groups"], strict=True)
        ]
        state = {at: state_dict["state"][place] for at, place in enumerate(places) if place in state_dict["state"]}
        self.optim.load_state_dict({"state": state, "param_groups": groups})
        self._take_options(self.optim.param_groups, self.param_groups)

    # Uneven inputs

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without inputs does for the others: a step with the gradients that are there. It takes no keywords."""
        return _ShadowStep(self)

    @property
    def join_device(self) -> Any:
        """The device of its collectives."""
        return self.param_groups[0]["params"][0].device

    @property
    def join_process_group(self) -> Any:
        """The ranks it runs on."""
        return self.process_group


def _checked(params: Any) -> list[Any]:
    """The items of `params`, whose parameters must be Tensors of one dtype."""
    if isinstance(params, fb.Tensor):
        raise TypeError(f"`params` argument should be an iterable of Tensors, but got {params.type()}")
    try:
        listed = list(params)
    except TypeError:
        raise TypeError(
            f"`params` argument should be an iterable of Tensors, but got {type(params).__name__}"
        ) from None
    if not listed:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    groups = [{**item, "params": list(item["params"])} if isinstance(item, dict) else item for item in listed]
    members: list[Any] = []
    for item in groups:
        if isinstance(item, fb.Tensor):
            members.append(item)
        elif isinstance(item, dict):
            members += item["params"]
        else:
            raise TypeError(f"`params` argument should be an iterable of Tensors or dicts, got {type(item).__name__}")
    for param in members:
        if param.dtype != members[0].dtype or param.device != members[0].device:
            raise ValueError(
                "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got both "
                f"{members[0].type()} and {param.type()}"
            )
    return groups
