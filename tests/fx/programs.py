"""Programs that are traced by PyTorch and by us: each takes the package it is to use and gives a module or function."""

from __future__ import annotations

import re


def mlp(torch):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def documented(torch):
    class MyModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.param = torch.nn.Parameter(torch.ones(3, 4))
            self.linear = torch.nn.Linear(4, 5)

        def forward(self, x):
            return self.linear(x + self.param).clamp(min=0.0, max=1.0)

    return MyModule()


def top_values(torch):
    class MyModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 5)

        def forward(self, x):
            return torch.topk(torch.sum(self.linear(x + self.linear.weight[:1]).relu(), dim=-1), 3)

    return MyModule()


def convolutional(torch):
    F = torch.nn.functional

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(4)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
            x = F.dropout(x.mean((2, 3)), 0.1, training=self.training)
            return F.log_softmax(self.head(x), dim=1)

    return Net()


def residual(torch):
    class Block(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
            self.bn1 = torch.nn.BatchNorm2d(width)
            self.relu = torch.nn.ReLU(inplace=True)
            self.conv2 = torch.nn.Conv2d(width, width, 1)

        def forward(self, x):
            out = self.conv2(self.relu(self.bn1(self.conv1(x))))
            out += x
            return self.relu(out)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.Sequential(Block(3), Block(3))
            self.pool = torch.nn.AdaptiveAvgPool2d(1)

        def forward(self, x):
            return torch.flatten(self.pool(self.layers(x)), 1)

    return Net()


def attention(torch):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ln = torch.nn.LayerNorm(8)
            self.qkv = torch.nn.Linear(8, 24)
            self.out = torch.nn.Linear(8, 8)
            self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
            self.register_buffer("mask", torch.ones(4, 4).tril() == 0)

        def forward(self, x):
            b, t, c = x.size(0), x.shape[1], x.size(-1)
            q, k, v = self.qkv(self.ln(x)).split(8, dim=2)
            q = q.view(b, t, 2, c // 2).transpose(1, 2)
            k = k.view(b, t, 2, c // 2).transpose(1, 2)
            v = v.view(b, t, 2, c // 2).transpose(1, 2)
            scores = (q @ k.transpose(-2, -1)) * (1.0 / 2.0)
            scores = torch.softmax(scores.masked_fill(self.mask, float("-inf")), dim=-1)
            y = (scores @ v).transpose(1, 2).contiguous().view(b, t, c)
            x = x + self.out(y)
            return x + self.mlp(x)

    return Block()


def recurrent(torch):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(4, 6, batch_first=True)
            self.head = torch.nn.Linear(6, 2)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            return {"last": self.head(y[:, -1]), "state": (h, c)}

    return Net()


def operators(torch):
    def operators(x, y=2.0):
        a = -x + 1 - x * y / 3
        b = x**2 // 1 % 5
        c = (x > 0) & (x <= 1) | ~(x == 0.5) ^ (x != 2)
        d = abs(x) @ x.T
        return [a, b, c, d, 2 - x, 1 / (x + 3), x[0], x[:, 1:], x[..., None]]

    return operators


def functions(torch):
    F = torch.nn.functional

    def functions(x):
        a = torch.cat([x, x], dim=1)
        b = torch.stack((x, x))
        c = torch.where(x > 0, x, torch.zeros_like(x))
        d = torch.sum(x, -1, keepdim=True)
        e = torch.clamp(x, max=1.0)
        f = torch.add(x, x, alpha=2)
        g = F.softmax(x, dim=-1)
        h = torch.matmul(x, other=x.t())
        i = torch.chunk(x, 2, dim=1)[0]
        return a, b, c, d, e, f, g, h, i

    return functions


def constants(torch):
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def constants(x):
        return x * weight + torch.ones(4) - weight

    return constants


# name -> the program, and the shape of its input.
PROGRAMS = {
    "mlp": (mlp, (3, 4)),
    "documented": (documented, (3, 4)),
    "top_values": (top_values, (3, 4)),
    "convolutional": (convolutional, (2, 3, 8, 8)),
    "residual": (residual, (2, 3, 4, 4)),
    "attention": (attention, (2, 4, 8)),
    "recurrent": (recurrent, (2, 3, 4)),
    "operators": (operators, (3, 3)),
    "functions": (functions, (4, 4)),
    "constants": (constants, (2, 4)),
}


def spelled(text):
    """Text about graphs with what PyTorch keeps under private names under the public ones."""
    text = text.replace("torch._C._nn.", "torch.nn.functional.").replace("torch.functional.", "torch.")
    return re.sub(r"torch\._C\._(linalg|fft|special)\.\1_", r"torch.\1.", text)
