"""Gaussian process regression: hyperparameters by L-BFGS on the marginal likelihood, predictions by Cholesky."""

import torch
from torch import nn
from torch.distributions import MultivariateNormal


class Process(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length, self.log_scale, self.log_noise = (nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in (-1.0, 0.0, -2.0))

    def kernel(self, a, b):
        return self.log_scale.exp() ** 2 * torch.exp(-0.5 * torch.cdist(a, b) ** 2 / self.log_length.exp() ** 2)

    def forward(self, x, y):
        cov = self.kernel(x, x) + self.log_noise.exp() ** 2 * torch.eye(len(x), dtype=x.dtype)
        return -MultivariateNormal(torch.zeros_like(y), covariance_matrix=cov).log_prob(y)

    def predict(self, x, y, new):
        cov = self.kernel(x, x) + self.log_noise.exp() ** 2 * torch.eye(len(x), dtype=x.dtype)
        factor = torch.linalg.cholesky(cov)
        across = self.kernel(x, new)
        mean = across.mT @ torch.cholesky_solve(y[:, None], factor)
        half = torch.linalg.solve_triangular(factor, across, upper=False)
        return mean[:, 0], (self.kernel(new, new) - half.mT @ half).diagonal()


torch.manual_seed(6)
x = torch.linspace(0, 1, 24, dtype=torch.float64)[:, None]
y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(24).double()
model = Process()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.2, max_iter=4)


def closure():
    optimizer.zero_grad()
    loss = model(x, y)
    loss.backward()
    return loss


for _ in range(5):
    print(optimizer.step(closure).item())
with torch.no_grad():
    mean, variance = model.predict(x, y, torch.tensor([[0.1], [0.55]], dtype=torch.float64))
print(*mean.tolist(), *variance.tolist())
