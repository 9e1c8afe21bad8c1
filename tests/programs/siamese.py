"""Points of one cluster are brought together by a triplet loss; a checkpoint in the middle is saved and read back."""

import io

import torch
from torch import nn

torch.manual_seed(9)
centers = torch.randn(4, 6) * 2
net = nn.Sequential(nn.Linear(6, 16), nn.PReLU(), nn.Linear(16, 3))
criterion = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: 1 - nn.functional.cosine_similarity(a, b), margin=0.5)
optimizer = torch.optim.RAdam(net.parameters(), lr=1e-2)
for step in range(24):
    kind = torch.randint(4, (16,))
    other = (kind + torch.randint(1, 4, (16,))) % 4
    anchor, same, different = (net(centers[k] + torch.randn(16, 6)) for k in (kind, kind, other))
    loss = criterion(anchor, same, different)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 11:
        file = io.BytesIO()
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        nn.init.zeros_(net[0].weight)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
    if step % 6 == 5:
        print(loss.item())
