"""A variational autoencoder of points on a noisy ring."""

import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence


class VAE(nn.Module):
    def __init__(self, hidden=32, latent=2):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2 * latent))
        self.decode = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.register_buffer("zero", torch.zeros(latent))

    def forward(self, x):
        mean, log_std = self.encode(x).chunk(2, dim=-1)
        posterior = Independent(Normal(mean, log_std.exp()), 1)
        prior = Independent(Normal(self.zero, torch.ones_like(self.zero)), 1)
        z = posterior.rsample()
        likelihood = Independent(Normal(self.decode(z), self.log_scale.exp()), 1).log_prob(x)
        return -(likelihood - kl_divergence(posterior, prior)).mean()


torch.manual_seed(2)
angle = torch.rand(128) * 2 * torch.pi
ring = torch.stack([angle.cos(), angle.sin()], -1) + 0.05 * torch.randn(128, 2)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(40):
    loss = model(ring)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 7:
        print(loss.item())
