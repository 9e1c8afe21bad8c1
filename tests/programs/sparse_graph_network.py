"""A graph network with a sparse adjacency matrix, whose edges have weights that are learned too."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(8)
labels = torch.arange(40) % 4
near = torch.where(labels[:, None] == labels, 0.5, 0.05)
edges = torch.nonzero((torch.rand(40, 40) < near).triu(1)).T
edges = torch.cat([edges, edges.flip(0), torch.arange(40).repeat(2, 1)], dim=1)
adjacency = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (40, 40)).coalesce()
degree = torch.sparse.sum(adjacency, 1).to_dense()
scale = degree.rsqrt()
weights = adjacency * scale[:, None] * scale[None, :]


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, matrix):
        return torch.sparse.mm(matrix, self.linear(x))


known = torch.arange(40) < 16
first, second = Convolution(40, 16), Convolution(16, 4)
edge_values = nn.Parameter(weights.values().clone())
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), edge_values], lr=0.02)
x = torch.eye(40)
for step in range(24):
    matrix = torch.sparse_coo_tensor(weights.indices(), edge_values, weights.shape, is_coalesced=True)
    attention = torch.sparse.softmax(matrix, 1)
    out = second(F.elu(first(x, matrix)), attention)
    loss = F.cross_entropy(out[known], labels[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 5:
        print(loss.item())
rows = weights.to_sparse_csr()
print((rows @ x).sum().item(), edge_values.detach().norm().item())
print((out.argmax(-1) == labels)[~known].float().mean().item())
