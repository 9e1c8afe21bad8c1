"""A spiral learned as a differential equation; gradients by the adjoint equation, in a function of its own."""

import itertools

import torch
from torch import nn


def step(f, y, dt):
    k1 = f(y)
    k2 = f(y + dt / 2 * k1)
    k3 = f(y + dt / 2 * k2)
    k4 = f(y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y0, f, times, *parameters):
        ctx.f, ctx.times = f, times
        path = [y0]
        with torch.no_grad():
            for before, after in itertools.pairwise(times):
                path.append(step(f, path[-1], after - before))
        path = torch.stack(path)
        ctx.save_for_backward(path, *parameters)
        return path

    @staticmethod
    def backward(ctx, grad):
        path, *parameters = ctx.saved_tensors
        lam, sums = grad[-1], [torch.zeros_like(p) for p in parameters]
        for i in range(len(path) - 2, -1, -1):
            with torch.enable_grad():
                y = path[i].detach().requires_grad_()
                end = step(ctx.f, y, ctx.times[i + 1] - ctx.times[i])
                lam, *parts = torch.autograd.grad(end, (y, *parameters), lam)
            lam = lam + grad[i]
            sums = [total + part for total, part in zip(sums, parts, strict=False)]
        return lam, None, None, *sums


torch.manual_seed(10)
true = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
times = torch.linspace(0, 1.5, 16)
f = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
start = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
with torch.no_grad():
    wanted = Adjoint.apply(start, lambda y: y @ true.T, times)
optimizer = torch.optim.Adam(f.parameters(), lr=1e-2)
for i in range(20):
    loss = (Adjoint.apply(start, f, times, *f.parameters()) - wanted).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 4 == 3:
        print(loss.item())
