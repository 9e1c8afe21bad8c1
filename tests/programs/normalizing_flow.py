"""Affine couplings turn a normal distribution into two moons."""

import torch
from torch import nn
from torch.distributions import Normal


class Coupling(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first
        self.net = nn.Sequential(nn.Linear(1, 24), nn.SiLU(), nn.Linear(24, 2))
        nn.init.zeros_(self.net[-1].weight)

    def forward(self, x):
        kept, moved = (x[:, :1], x[:, 1:]) if self.first else (x[:, 1:], x[:, :1])
        log_scale, shift = self.net(kept).split(1, dim=-1)
        log_scale = torch.tanh(log_scale)
        moved = moved * log_scale.exp() + shift
        return torch.cat((kept, moved) if self.first else (moved, kept), -1), log_scale.squeeze(-1)


torch.manual_seed(7)
angle = torch.rand(128) * torch.pi
upper = torch.arange(128) % 2 == 0
moons = torch.where(upper[:, None], torch.stack([angle.cos(), angle.sin()], 1), torch.stack([1 - angle.cos(), 0.5 - angle.sin()], 1))
moons += 0.05 * torch.randn_like(moons)
flow = nn.ModuleList(Coupling(i % 2 == 0) for i in range(4))
optimizer = torch.optim.Adamax(flow.parameters(), lr=1e-2)
base = Normal(0.0, 1.0)
for step in range(40):
    z, log_det = moons, torch.zeros(len(moons))
    for layer in flow:
        z, part = layer(z)
        log_det = log_det + part
    loss = -(base.log_prob(z).sum(-1) + log_det).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 7:
        print(loss.item())
