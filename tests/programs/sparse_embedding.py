"""Words and bags of words with sparse gradients: SparseAdam and Adagrad change the rows that were read."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(3)
topics = torch.arange(64) % 4
words = topics[:, None] * 25 + torch.randint(0, 25, (64, 12))
words[torch.rand(64, 12) < 0.3] = 100
table = nn.Embedding(1001, 8, sparse=True, padding_idx=1000)
bags = nn.EmbeddingBag(1001, 8, mode="mean", sparse=True)
head = nn.Linear(16, 4)
sparse = torch.optim.SparseAdam(table.parameters(), lr=0.05)
adagrad = torch.optim.Adagrad(bags.parameters(), lr=0.2)
dense = torch.optim.SGD(head.parameters(), lr=0.5)
for step in range(30):
    at = torch.randint(0, 64, (16,))
    read = words[at]
    out = head(torch.cat([table(read).mean(1), bags(read)], dim=1))
    loss = F.cross_entropy(out, topics[at])
    for optimizer in (sparse, adagrad, dense):
        optimizer.zero_grad()
    loss.backward()
    for optimizer in (sparse, adagrad, dense):
        optimizer.step()
    if step % 6 == 5:
        print(loss.item())
print(table.weight.grad.coalesce()._nnz(), table.weight.detach()[200:].norm().item())
