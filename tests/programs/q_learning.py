"""A Q-network with a target network and a replay buffer walks a corridor to its end."""

import copy
import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

LENGTH = 6
random.seed(4)
torch.manual_seed(4)
net = nn.Sequential(nn.Linear(LENGTH, 24), nn.ReLU(), nn.Linear(24, 2))
target = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3)
memory = deque(maxlen=500)


def seen(place):
    return F.one_hot(torch.as_tensor(place), LENGTH).float()


place, losses = 0, []
for step in range(160):
    action = random.randrange(2) if random.random() < 0.5 else net(seen(place)).argmax().item()
    following = max(0, place - 1) if action == 0 else place + 1
    done = following == LENGTH - 1
    memory.append((place, action, 1.0 if done else -0.02, following, done))
    place = 0 if done else following
    if len(memory) < 16:
        continue
    s, a, r, n, d = map(torch.tensor, zip(*random.sample(memory, 16), strict=False))
    with torch.no_grad():
        best = target(seen(n)).amax(1)
        wanted = r + 0.9 * best * ~d
    loss = F.smooth_l1_loss(net(seen(s)).gather(1, a[:, None])[:, 0], wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(net.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 19:
        target.load_state_dict(net.state_dict())
        print(loss.item())
