"""A denoising diffusion model of points on a spiral, with a moving average of its weights, and draws from it."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

STEPS = 20


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.enter, self.leave = nn.Linear(2, width), nn.Linear(width, 2)
        self.middle = nn.Sequential(nn.Mish(), nn.Linear(width, width), nn.Mish())

    def forward(self, x, t):
        return self.leave(self.middle(self.enter(x) + self.time(t)))


torch.manual_seed(11)
beta = torch.linspace(1e-3, 0.2, STEPS)
alpha = torch.cumprod(1 - beta, 0)
turn = torch.sqrt(torch.rand(256)) * 3 * torch.pi
spiral = torch.stack([turn * turn.cos(), turn * turn.sin()], 1) / 10
model = Denoiser()
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(40):
    t = torch.randint(STEPS, (256,))
    noise = torch.randn_like(spiral)
    noisy = alpha[t].sqrt()[:, None] * spiral + (1 - alpha[t]).sqrt()[:, None] * noise
    loss = nn.functional.mse_loss(model(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    if step % 8 == 7:
        print(loss.item())
average.eval()
with torch.no_grad():
    x = torch.randn(64, 2)
    for t in reversed(range(STEPS)):
        predicted = average(x, torch.full((64,), t))
        x = (x - beta[t] / (1 - alpha[t]).sqrt() * predicted) / (1 - beta[t]).sqrt()
        if t > 0:
            x = x + beta[t].sqrt() * torch.randn_like(x)
print(*x.mean(0).tolist(), x.std().item())
