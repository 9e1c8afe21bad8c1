"""Tell crosses from squares: a small convolutional network with batch norm and dropout, trained on drawn images."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def draw(count):
    images, labels = torch.randn(count, 1, 12, 12) * 0.3, torch.arange(count) % 2
    for image, label in zip(images, labels, strict=False):
        row, col = torch.randint(1, 5, (2,)).tolist()
        if label == 0:
            image[0, row : row + 6, col + 3] += 1
            image[0, row + 3, col : col + 6] += 1
        else:
            image[0, row : row + 6, [col, col + 5]] += 1
            image[0, [row, row + 5], col : col + 6] += 1
    return images, labels


torch.manual_seed(0)
loader = DataLoader(TensorDataset(*draw(64)), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 2),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
for _epoch in range(3):
    model.train()
    for x, y in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    schedule.step()
    print(loss.item())
model.eval()
with torch.no_grad():
    x, y = draw(16)
    print(criterion(model(x), y).item())
