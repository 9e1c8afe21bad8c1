"""A GRU reads digits, another writes them backwards, with attention over what was read."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

DIGITS, END = 8, 8


class Reverser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(DIGITS + 2, width, padding_idx=DIGITS + 1)
        self.read = nn.GRU(width, width, batch_first=True)
        self.write = nn.GRUCell(width, width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.out = nn.Linear(2 * width, DIGITS + 1)

    def forward(self, source, lengths, wanted):
        packed = pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        outputs, state = self.read(packed)
        memory, _ = pad_packed_sequence(outputs, batch_first=True)
        padding = torch.arange(memory.shape[1]) >= lengths[:, None]
        h, token, scores = state[0], torch.full((len(source),), END), []
        for step in range(wanted.shape[1]):
            h = self.write(self.embed(token), h)
            context, _ = self.attend(h[:, None], memory, memory, key_padding_mask=padding)
            scores.append(self.out(torch.cat([h, context[:, 0]], -1)))
            token = wanted[:, step].clamp(min=0)
        return torch.stack(scores, 1)


torch.manual_seed(5)
model = Reverser()
optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
for step in range(20):
    lengths = torch.randint(2, 6, (12,))
    lines = [torch.randint(DIGITS, (n,)) for n in lengths.tolist()]
    source = pad_sequence(lines, batch_first=True, padding_value=DIGITS + 1)
    wanted = pad_sequence([torch.cat([line.flip(0), torch.tensor([END])]) for line in lines], batch_first=True, padding_value=-100)
    loss = nn.functional.cross_entropy(model(source, lengths, wanted).transpose(1, 2), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(loss.item())
