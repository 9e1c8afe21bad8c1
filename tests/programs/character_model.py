"""A transformer that learns to spell a line, and then spells it greedily."""

import torch
from torch import nn
from torch.nn import functional as F

TEXT = "she sells sea shells by the sea shore. " * 4
letters = sorted(set(TEXT))
data = torch.tensor([letters.index(c) for c in TEXT])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norm2(x))


class Speller(nn.Module):
    def __init__(self, count, width=32, context=24):
        super().__init__()
        self.token, self.place = nn.Embedding(count, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, count, bias=False)
        self.head.weight = self.token.weight
        self.apply(self._start)

    @staticmethod
    def _start(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.05)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(1)
model = Speller(len(letters))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
for step in range(30):
    starts = torch.randint(len(data) - 25, (8,))
    x = torch.stack([data[s : s + 24] for s in starts])
    y = torch.stack([data[s + 1 : s + 25] for s in starts])
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print(loss.item())
model.eval()
tokens = data[:4][None]
with torch.inference_mode():
    for _ in range(12):
        following = model(tokens[:, -24:])[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
print(*tokens[0].tolist())
