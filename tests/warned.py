"""Says of programs which warnings they give, each program in a process that has given none yet: ``warned.py flambeau``, or ``torch``."""

from __future__ import annotations

import importlib
import os
import sys
import warnings

SHOWN = """
x = torch.ones(2, requires_grad=True); (x * x).sum().backward(create_graph=True); (x * x).sum().backward(create_graph=True)
x = torch.ones(2, requires_grad=True); torch.autograd.grad((x * x).sum(), x, create_graph=True)
x = torch.ones(2, requires_grad=True); y = x * 2; y.grad; y.grad
o = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1); s = torch.optim.lr_scheduler.StepLR(o, 1); s.step(); o.step(); s.step()
o = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], 0.1); s = torch.optim.lr_scheduler.StepLR(o, 1); o.step(); s.step(); s.step()
[torch.add(torch.ones(3), 1, out=torch.ones(2)) for _ in range(2)]
torch.add(torch.ones(3), 1, out=torch.ones(0))
[torch.tensor(torch.ones(2)) for _ in range(2)]
a = np.ones(3); a.flags.writeable = False; [torch.from_numpy(a) for _ in range(2)]
a = np.ones(3); a.flags.writeable = False; torch.as_tensor(a)
torch.frombuffer(b"12345678", dtype=torch.int32)
[torch.tensor([np.ones(2), np.ones(2)]) for _ in range(2)]
torch.as_tensor((np.ones(2),)), torch.tensor([[1.0, 2.0], np.ones(2)])
torch.tensor([np.float64(1.0)])
x = torch.ones(1, requires_grad=True); float(x), float(x), complex(x)
x = torch.ones(1, requires_grad=True); int(x), bool(x), x.item(), x.tolist(), f"{x.sum():.2f}"
x = torch.ones(1, requires_grad=True); torch.tensor([x.sum()])
[F.mse_loss(torch.ones(3, 1), torch.ones(3)) for _ in range(2)]
F.l1_loss(torch.ones(3, 1), torch.ones(3)), F.huber_loss(torch.ones(3, 1), torch.ones(3)), F.smooth_l1_loss(torch.ones(3, 1), torch.ones(3))
F.mse_loss(torch.ones(3), torch.ones(3), size_average=False)
F.kl_div(torch.zeros(2, 2), torch.ones(2, 2)), F.softmax(torch.ones(2, 2)), torch.nn.Softmax()(torch.ones(2, 2))
[torch.arange(9).view(3, 3)[[[0, 1], [1, 0]]] for _ in range(2)]
torch.arange(9).view(3, 3)[[slice(0, 1), 1]], torch.arange(9).view(3, 3).__setitem__([[0, 1], [1, 0]], 0)
torch.arange(9).view(3, 3)[[0, 1]], torch.arange(3)[[True, False, True]]
torch.arange(3)[torch.tensor([1, 0, 1], dtype=torch.uint8)]
torch.ones(2, 3, 4).T, torch.ones(2).T
torch.ones(1).std(), torch.ones(0).var()
torch.ones(2, dtype=torch.complex64).float()
F.gumbel_softmax(torch.ones(2, 2), eps=1e-9), F.gumbel_softmax(torch.ones(2, 2))
[torch.ones(2).storage() for _ in range(2)][0].tolist()
torch.ones(2).untyped_storage().nbytes()
m = torch.nn.Linear(2, 2); m.register_full_backward_hook(lambda *a: None); [m(torch.ones(1, 2)).sum().backward() for _ in range(2)]
m = torch.nn.Linear(2, 2); m.register_full_backward_hook(lambda *a: None); m(torch.ones(1, 2, requires_grad=True)).sum().backward()
m = torch.nn.Linear(2, 2); m.register_backward_hook(lambda *a: None); [m(torch.ones(1, 2, requires_grad=True)).sum() for _ in range(2)]
m = torch.nn.ReLU(); m.register_backward_hook(lambda *a: None); m(torch.ones(2, requires_grad=True) * 2)
m = torch.nn.ReLU(); m.register_backward_hook(lambda *a: None); m(torch.ones(2, requires_grad=True))
m = torch.nn.LSTM(2, 2); m.register_backward_hook(lambda *a: None); m(torch.ones(3, 1, 2, requires_grad=True))
m = torch.nn.MultiheadAttention(4, 2); x = torch.ones(3, 1, 4); m(x, x, x, torch.zeros(1, 3, dtype=torch.bool), True, torch.zeros(3, 3))
m = torch.nn.TransformerEncoderLayer(4, 2); m(torch.ones(3, 1, 4), torch.zeros(3, 3), torch.zeros(1, 3, dtype=torch.bool))
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2), 1)
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(6, 3, batch_first=True), 1)
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, batch_first=True, norm_first=True), 1)
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, batch_first=True), 1)
torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2), 1, enable_nested_tensor=False)
S = type("S", (D.IterableDataset,), {"__iter__": lambda s: iter([1, 2]), "__len__": lambda s: 1}); list(D.DataLoader(S()))
S = type("S", (D.IterableDataset,), {"__iter__": lambda s: iter([1, 2]), "__len__": lambda s: 1}); d = D.DataLoader(S()); len(d); [*d]
x = torch.ones(2, requires_grad=True); x.register_hook(lambda g: g); pickle.dumps(x), copy.copy(x)
x = torch.ones(2, requires_grad=True); x.register_hook(lambda g: g); torch.save({"a": x}, io.BytesIO())
x = torch.nn.Parameter(torch.ones(2)); x.register_hook(lambda g: g); pickle.dumps(x), copy.deepcopy(x)
x = torch.ones(2, requires_grad=True); h = x.register_hook(lambda g: g); h.remove(); pickle.dumps(x)
x = torch.ones(2, requires_grad=True); [torch.asarray(x) for _ in range(2)]
torch.asarray(torch.ones(2)), torch.asarray(torch.ones(2, requires_grad=True), requires_grad=False)
torch.meshgrid(torch.ones(2), torch.ones(3)), torch.range(0, 2), torch.nn.utils.clip_grad_norm([torch.ones(2, requires_grad=True)], 1.0)
torch.nn.init.xavier_uniform(torch.ones(2, 2)), torch.nn.LSTM(2, 2, dropout=0.5)
"""


def main() -> None:
    lib = importlib.import_module(sys.argv[1])
    nn = importlib.import_module(f"{sys.argv[1]}.nn.functional")
    data = importlib.import_module(f"{sys.argv[1]}.utils.data")
    import copy
    import io
    import pickle

    import numpy as np

    for program in SHOWN.strip().splitlines():
        sys.stdout.flush()
        process = os.fork()
        if process:
            os.waitpid(process, 0)
            continue
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            exec(program, {"torch": lib, "F": nn, "D": data, "np": np, "pickle": pickle, "copy": copy, "io": io})
        print(*(w.category.__name__ for w in given), program, sep=" | ", flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
