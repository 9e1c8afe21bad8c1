"""Two networks: one makes numbers, one tells them from draws of a mixture of two normals."""

import torch
from torch import nn

torch.manual_seed(3)
maker = nn.Sequential(nn.Linear(4, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
judge = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(1, 24)), nn.LeakyReLU(0.2), nn.Linear(24, 1))
make_step = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.999))
judge_step = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
for step in range(30):
    real = torch.where(torch.rand(64, 1) < 0.5, -2.0, 2.0) + 0.3 * torch.randn(64, 1)
    fake = maker(torch.randn(64, 4))
    judge_loss = criterion(judge(real), ones) + criterion(judge(fake.detach()), zeros)
    judge_step.zero_grad()
    judge_loss.backward()
    judge_step.step()
    judge.requires_grad_(False)
    make_loss = criterion(judge(fake), ones)
    make_step.zero_grad()
    make_loss.backward()
    make_step.step()
    judge.requires_grad_(True)
    if step % 6 == 5:
        print(judge_loss.item(), make_loss.item())
