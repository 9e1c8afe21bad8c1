"""Modules that PyTorch has inside, and that programs import although its documentation names others: what offers their names here.

What the documentation itself tells of such modules is in `api_index.json`.
"""

from __future__ import annotations

__all__ = ["INNER", "MOVED"]

# By the namespace that offers their names: modules below it, "module=package.module" where one within that namespace has more of them.
_BELOW = {
    "torch.accelerator": "memory graphs",
    "torch.ao.nn.intrinsic.qat": "modules.linear_fused",
    "torch.ao.nn.intrinsic.quantized": "modules.conv_add",
    "torch.ao.nn.qat": "modules.embedding_ops",
    "torch.ao.nn.quantized": """
        modules.dropout modules.embedding_ops=_embedding modules.linear=_linear modules.rnn=_rnn
        modules.utils=_base
    """,
    "torch.ao.nn.quantized.dynamic": "modules.conv modules.rnn=_rnn",
    "torch.ao.nn.quantized.reference": "modules modules.conv modules.linear modules.rnn=_rnn modules.sparse modules.utils",
    "torch.cuda.amp": "common",
    "torch.distributed": "rendezvous",
    "torch.distributed.elastic.multiprocessing.errors": "handlers",
    "torch.distributed.tensor": "device_mesh",
    "torch.distributed.tensor.parallel": "api loss input_reshard",
    "torch.package": "glob_group importer",
    "torch.signal.windows": "windows",
    "torch.utils.data.datapipes.iter": """
        callable=transforming filelister=files fileopener=files routeddecoder=files selecting=transforming streamreader=files
        utils=transforming
    """,
    "torch.utils.data.datapipes.map": "callable combinatorics combining grouping utils",
    "torch.xpu": "graphs memory random",
}

INNER = {
    f"{home}.{module}": f"{home}.{within}" if within else home
    for home, modules in _BELOW.items()
    for module, _, within in (entry.partition("=") for entry in modules.split())
}

INNER.update({
    "torch.nn.modules.linear_cross_entropy_options": "torch.nn._newer_functional",
    "torch.cuda.green_contexts": "torch.cuda",
    "torch.nn.parallel.comm": "torch.cuda.comm",
    "torch.utils.cpp_backtrace": "torch.utils",
})

# Older names of packages and the newer ones: all that is below the newer is below the older too.
MOVED = {
    "torch.nn.intrinsic": "torch.ao.nn.intrinsic",
    "torch.nn.qat": "torch.ao.nn.qat",
    "torch.nn.quantizable": "torch.ao.nn.quantizable",
    "torch.nn.quantized": "torch.ao.nn.quantized",
    "torch.quantization": "torch.ao.quantization",
}
