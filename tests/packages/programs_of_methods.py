"""Training loops, losses, optimizers, explanations, privacy, reinforcement learning, flows, Bayesian optimization, geometry."""

from __future__ import annotations

PROGRAMS = {
    "torchrl": """
import os, warnings; warnings.simplefilter("ignore")
os.environ["RL_LOGGING_LEVEL"] = "ERROR"
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, ReplayBuffer, TensorDictReplayBuffer, PrioritizedSampler
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator, QValueActor, NormalParamExtractor
from torchrl.objectives import ClipPPOLoss, DQNLoss, SACLoss, SoftUpdate
from torchrl.objectives.value import GAE
torch.manual_seed(0)
data = TensorDict({"observation": torch.randn(16, 4), "next": {"observation": torch.randn(16, 4), "reward": torch.randn(16, 1),
    "done": torch.rand(16, 1) < 0.1, "terminated": torch.zeros(16, 1, dtype=torch.bool)}}, [16])
core = torch.nn.Sequential(MLP(in_features=4, out_features=4, num_cells=[8]), NormalParamExtractor())
actor = ProbabilisticActor(TensorDictModule(core, ["observation"], ["loc", "scale"]), in_keys=["loc", "scale"],
    distribution_class=TanhNormal,
    return_log_prob=True)
critic = ValueOperator(MLP(in_features=4, out_features=1, num_cells=[8]), in_keys=["observation"])
data = actor(data).detach()
GAE(gamma=0.9, lmbda=0.9, value_network=critic)(data)
loss = ClipPPOLoss(actor, critic, entropy_bonus=True)
optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
for _ in range(4):
    found = loss(data)
    total = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
    total.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(total.item())
value = QValueActor(MLP(in_features=4, out_features=3, num_cells=[8]), in_keys=["observation"], action_space="one-hot")
loss = DQNLoss(value, action_space="one-hot", delay_value=True)
target = SoftUpdate(loss, eps=0.9)
data = value(data.exclude("action")).detach()
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(32), batch_size=8)
buffer.extend(data)
print(float(len(buffer)), float(buffer.sample().shape[0]))
optimizer = torch.optim.Adam(loss.parameters(), lr=1e-2)
for _ in range(3):
    found = loss(data)["loss"]
    found.backward()
    optimizer.step()
    optimizer.zero_grad()
    target.step()
    print(found.item())
""",
    "tensordict": """
import warnings; warnings.simplefilter("ignore")
import tempfile, torch
from tensordict import TensorDict, from_module, stack, tensorclass
from tensordict.nn import CompositeDistribution, TensorDictModule, TensorDictSequential, ProbabilisticTensorDictModule
from tensordict.nn import set_interaction_type
torch.manual_seed(0)
data = TensorDict({"a": torch.randn(4, 3), "b": {"c": torch.arange(4)}}, batch_size=[4])
print(data[1:3]["b", "c"].sum().item(), data.reshape(2, 2)["a"].shape[0], (data + 1)["a"].sum().item(),
    data.to(torch.float64)["a"].sum().item())
print(torch.stack([data, data], 0)["a"].sum().item(), torch.cat([data, data], 0).batch_size[0],
    data.apply(lambda x: x * 2)["a"].sum().item())
data["d"] = torch.zeros(4, 2)
data[0] = data[1]
print(float(len(data.keys(True, True))), data["a"].sum().item(), data.exclude("a").flatten_keys(".")["b.c"].sum().item(),
    data.split(2)[1]["a"].sum().item())
with tempfile.TemporaryDirectory() as folder:
    kept = data.memmap(folder)
    print(TensorDict.load_memmap(folder)["a"].sum().item(), kept["b", "c"].sum().item())
net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
weights = from_module(net)
print(float(len(weights.flatten_keys(".").keys())))
with (weights * 0).to_module(net):
    print(net(data["a"]).abs().sum().item())
def loss_of(weights, x):
    with weights.to_module(net):
        return net(x).square().sum()
print(torch.vmap(loss_of, (None, 0))(weights.data, data["a"]).sum().item())
two = torch.stack([weights.data, weights.data * 2], 0)
print(torch.vmap(loss_of, (0, None))(two, data["a"]).tolist()[1])
print(*[x.sum().item() for x in torch.func.grad(loss_of)(weights.data, data["a"]).values(True, True)])
module = TensorDictSequential(TensorDictModule(net, in_keys=["a"], out_keys=["logits"]),
    ProbabilisticTensorDictModule(in_keys=["logits"], out_keys=["action"], distribution_class=torch.distributions.Categorical))
print(module(data)["action"].sum().item())
@tensorclass
class Point:
    x: torch.Tensor
    name: str
point = Point(torch.ones(3), name="p", batch_size=[3])
print(point[:2].x.sum().item(), torch.stack([point, point]).x.sum().item())
net = torch.nn.Linear(3, 2)
module = TensorDictModule(net, in_keys=["a"], out_keys=["logits"])
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(3):
    loss = module(data)["logits"].square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
""",
    "stable_baselines3": """
import warnings; warnings.simplefilter("ignore")
import tempfile, gymnasium, numpy, torch
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
class Line(gymnasium.Env):
    def __init__(self, continuous):
        self.observation_space = gymnasium.spaces.Box(-5.0, 5.0, (2,), numpy.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), numpy.float32) if continuous else gymnasium.spaces.Discrete(2)
    def look(self):
        return numpy.array([self.place, self.steps / 20], numpy.float32)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 1.0, 0
        return self.look(), {}
    def step(self, action):
        self.place += 0.2 * (float(action[0]) if isinstance(self.action_space, gymnasium.spaces.Box) else 2 * int(action) - 1)
        self.steps += 1
        return self.look(), -abs(self.place), False, self.steps == 20, {}
for make, continuous, settings in (
    (PPO, False, dict(n_steps=64, batch_size=32, n_epochs=2)), (A2C, False, dict(n_steps=8)), (PPO, True, dict(n_steps=64, batch_size=32,
        n_epochs=2, use_sde=True)), (DQN, False, dict(learning_starts=20, train_freq=4, buffer_size=200, target_update_interval=20)),
    (SAC, True, dict(learning_starts=20, buffer_size=200, batch_size=32)), (TD3, True, dict(learning_starts=20, buffer_size=200)),
    (DDPG, True, dict(learning_starts=20, buffer_size=200))):
    model = make("MlpPolicy", Line(continuous), seed=1, device="cpu", policy_kwargs=dict(net_arch=[16]), **settings)
    model.learn(128)
    print(sum(p.double().abs().sum().item() for p in model.policy.parameters()))
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder + "/model")
        again = make.load(folder + "/model")
    start = numpy.array([1.0, 0.0], numpy.float32)
    print(*numpy.atleast_1d(model.predict(start, deterministic=True)[0]), *numpy.atleast_1d(again.predict(start, deterministic=True)[0]))
""",
    "opacus": """
import warnings; warnings.simplefilter("ignore")
import torch, opacus
from opacus import PrivacyEngine
torch.manual_seed(0)
x, y = torch.randn(32, 1, 8, 8), torch.randint(0, 3, (32,))
net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144,
    3))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
engine = PrivacyEngine(accountant="rdp")
net, optimizer, loader = engine.make_private(module=net, optimizer=optimizer, data_loader=loader, noise_multiplier=1.1, max_grad_norm=1.0)
for images, marks in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(images), marks)
    loss.backward()
    print(loss.item(), net._module[0].weight.grad_sample.norm().item())
    optimizer.step()
print(engine.get_epsilon(1e-5))
torch.manual_seed(0)
words = torch.randint(0, 9, (6, 5))
class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 8)
        self.lstm = opacus.layers.DPLSTM(8, 6, batch_first=True)
        self.norm = torch.nn.LayerNorm(6)
        self.attention = opacus.layers.DPMultiheadAttention(6, 2)
        self.head = torch.nn.Linear(6, 2)
    def forward(self, x):
        found = self.norm(self.lstm(self.embedding(x))[0]).transpose(0, 1)
        return self.head(self.attention(found, found, found)[0].mean(0))
for mode in ("hooks", "functorch"):
    torch.manual_seed(0)
    reader = Reader() if mode != "functorch" else torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    data = words if mode != "functorch" else words.float()
    wrapped = opacus.GradSampleModule(reader) if mode == "hooks" else opacus.grad_sample.GradSampleModule(reader, force_functorch=True)
    torch.nn.functional.cross_entropy(wrapped(data), words[:, 0] % 2).backward()
    for p in wrapped.parameters():
        print(p.grad_sample.norm().item(), p.grad.norm().item())
print(float(len(opacus.validators.ModuleValidator.validate(torch.nn.Sequential(torch.nn.BatchNorm1d(3)), strict=False))))
""",
    "captum": """
import warnings; warnings.simplefilter("ignore")
import numpy, torch
from captum import attr
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36,
    3)).eval()
x = torch.randn(2, 1, 8, 8)
blank = torch.zeros_like(x)
for make, settings in (
    (attr.IntegratedGradients, dict(baselines=blank, n_steps=8)), (attr.Saliency, {}), (attr.InputXGradient, {}), (attr.Deconvolution,
        {}),
    (attr.GuidedBackprop, {}), (attr.DeepLift, dict(baselines=blank)), (attr.DeepLiftShap, dict(baselines=torch.zeros(3, 1, 8, 8))),
    (attr.GradientShap, dict(baselines=torch.zeros(3, 1, 8, 8), n_samples=4)), (attr.FeatureAblation, {}),
    (attr.Occlusion, dict(sliding_window_shapes=(1, 3, 3), strides=(1, 2, 2))), (attr.ShapleyValueSampling, dict(n_samples=2)),
    (attr.FeaturePermutation, {}), (attr.KernelShap, dict(n_samples=20)),
):
    torch.manual_seed(1), numpy.random.seed(1)
    found = make(net).attribute(x[:1] if make is attr.KernelShap else x, target=1, **settings)
    print(found.sum().item(), found.abs().max().item())
print(attr.LayerGradCam(net, net[0]).attribute(x, target=0).sum().item())
print(attr.GuidedGradCam(net, net[0]).attribute(x, target=0).sum().item())
print(attr.LayerConductance(net, net[0]).attribute(x, target=0, n_steps=5).sum().item())
print(attr.LayerIntegratedGradients(net, net[3]).attribute(x, target=0, n_steps=5).sum().item())
print(attr.LayerActivation(net, net[0]).attribute(x).sum().item())
print(attr.NeuronConductance(net, net[0]).attribute(x, (0, 1, 1), target=0, n_steps=5).sum().item())
smooth = attr.NoiseTunnel(attr.Saliency(net))
print(smooth.attribute(x, nt_samples=3, nt_type="smoothgrad", target=1).sum().item())
""",
    "ignite": """
import warnings; warnings.simplefilter("ignore")
import tempfile, torch
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, EMAHandler, LRScheduler, PiecewiseLinear, TerminateOnNan
from ignite.metrics import Accuracy, ConfusionMatrix, Fbeta, Loss, Precision, Recall, RunningAverage
torch.manual_seed(0)
x = torch.randn(40, 5)
y = (x[:, 0] > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer, loss = torch.optim.SGD(net.parameters(), lr=0.1), torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(net, optimizer, loss, gradient_accumulation_steps=2)
precision, recall = Precision(average=False), Recall(average=False)
metrics = dict(accuracy=Accuracy(), loss=Loss(loss), fbeta=Fbeta(1.0), f1=(precision * recall * 2 / (precision + recall)).mean())
evaluator = create_supervised_evaluator(net, metrics | {"table": ConfusionMatrix(2)})
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "average")
trainer.add_event_handler(Events.ITERATION_STARTED, PiecewiseLinear(optimizer, "lr", [(0, 0.1), (10, 0.01)]))
trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
EMAHandler(net, momentum=0.1).attach(trainer)
@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    found = evaluator.run(loader).metrics
    print(engine.state.metrics["average"], found["accuracy"], found["loss"], found["fbeta"], found["f1"],
        *found["table"].flatten().tolist())
with tempfile.TemporaryDirectory() as folder:
    saver = Checkpoint({"net": net, "optimizer": optimizer, "trainer": trainer}, DiskSaver(folder, create_dir=True), n_saved=1,
        score_function=lambda engine: -engine.state.metrics["loss"], score_name="loss")
    evaluator.add_event_handler(Events.COMPLETED, saver)
    evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(3, lambda engine: -engine.state.metrics["loss"], trainer))
    trainer.run(loader, max_epochs=3)
    Checkpoint.load_objects({"net": net, "optimizer": optimizer, "trainer": trainer}, torch.load(str(saver.last_checkpoint)))
print(net(x).sum().item(), trainer.state.iteration)
""",
    "kornia": """
import warnings; warnings.simplefilter("ignore")
import kornia, torch
import kornia.augmentation as K
torch.manual_seed(0)
x = torch.rand(2, 3, 16, 16, requires_grad=True)
for f in (lambda x: kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)), kornia.filters.sobel, lambda x: kornia.filters.laplacian(x, 3),
        lambda x: kornia.filters.median_blur(x, (3, 3)), lambda x: kornia.filters.bilateral_blur(x, (3, 3), 0.1, (1.0, 1.0)),
        lambda x: kornia.filters.unsharp_mask(x, (3, 3), (1.5, 1.5)), kornia.filters.spatial_gradient,
        lambda x: kornia.filters.canny(x)[0], kornia.color.rgb_to_hsv, kornia.color.rgb_to_lab, kornia.color.rgb_to_grayscale,
        kornia.color.rgb_to_ycbcr, lambda x: kornia.enhance.adjust_hue(x, 0.3), kornia.enhance.equalize,
        lambda x: kornia.enhance.adjust_gamma(x, 0.5),
        lambda x: kornia.enhance.equalize_clahe(x, grid_size=(2, 2)), lambda x: kornia.geometry.transform.rotate(x, torch.tensor([30.0,
        60.0])),
        lambda x: kornia.geometry.transform.resize(x, (8, 12), antialias=True), lambda x: kornia.geometry.transform.hflip(x),
        lambda x: kornia.geometry.transform.pyrdown(x), lambda x: kornia.morphology.dilation(x, torch.ones(3, 3)),
        lambda x: kornia.feature.harris_response(x), lambda x: kornia.geometry.transform.elastic_transform2d(x, torch.ones(2, 2, 16,
        16) * 0.1),
        lambda x: kornia.geometry.transform.warp_affine(x, torch.eye(2, 3)[None].repeat(2, 1, 1) + 0.1, (12, 12)),
        lambda x: kornia.geometry.transform.warp_perspective(x, torch.eye(3)[None].repeat(2, 1, 1) + 0.01, (12, 12))):
    found = f(x)
    x.grad = None
    if found.requires_grad:
        found.square().sum().backward()
    print(found.sum().item(), 0 if x.grad is None else x.grad.nan_to_num().norm().item())
a, b = torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)
print(kornia.losses.ssim_loss(a, b, 5).item(), kornia.losses.psnr_loss(a, b, 1.0).item(), kornia.losses.total_variation(a).sum().item())
labels = torch.randint(0, 3, (2, 16, 16))
print(kornia.losses.focal_loss(a, labels, 0.5, reduction="mean").item(), kornia.losses.dice_loss(a, labels).item(),
    kornia.losses.lovasz_softmax_loss(a, labels).item(), kornia.losses.tversky_loss(a, labels, 0.5, 0.5).item())
torch.manual_seed(2)
more = K.AugmentationSequential(K.RandomHorizontalFlip(p=0.5), K.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0), K.RandomAffine(20.0, p=1.0),
    K.RandomErasing(p=1.0), K.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0), K.RandomCrop((12, 12)), data_keys=["input", "mask"])
found = more(a, b)
print(found[0].sum().item(), found[1].sum().item())
print(K.RandomMixUpV2(p=1.0)(a, torch.tensor([0, 1]))[0].sum().item(), K.RandomCutMixV2(p=1.0)(a, torch.tensor([0, 1]))[0].sum().item())
points = torch.rand(1, 10, 2)
print(kornia.geometry.homography.find_homography_dlt(points, points * 2 + 0.5).flatten().tolist()[0])
print(*kornia.geometry.conversions.axis_angle_to_rotation_matrix(torch.tensor([[0.1, 0.2, 0.3]])).flatten().tolist())
print(kornia.feature.SIFTDescriptor(16)(a[:, :1]).sum().item(), kornia.feature.HardNet(False).eval()(torch.rand(2, 1, 32,
    32)).sum().item())
print(kornia.feature.match_nn(torch.rand(5, 4), torch.rand(6, 4))[0].sum().item())
""",
    "botorch": """
import warnings; warnings.simplefilter("ignore")
import torch
from botorch.acquisition import ExpectedImprovement, LogExpectedImprovement, UpperConfidenceBound, qExpectedImprovement
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP, ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood
torch.manual_seed(0)
x = torch.rand(8, 2, dtype=torch.float64)
y = -((x - 0.4) ** 2).sum(-1, keepdim=True)
model = SingleTaskGP(x, y, outcome_transform=Standardize(1), input_transform=Normalize(2))
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
found = model.posterior(torch.tensor([[0.2, 0.3], [0.5, 0.5]], dtype=torch.float64))
print(*found.mean.flatten().tolist(), *found.variance.flatten().tolist())
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
for wanted in (LogExpectedImprovement(model, y.max()), UpperConfidenceBound(model, 0.2)):
    torch.manual_seed(1)
    best, value = optimize_acqf(wanted, bounds, q=1, num_restarts=3, raw_samples=16)
    print(*[round(v, 3) for v in best.flatten().tolist()])
sampler = SobolQMCNormalSampler(torch.Size([16]), seed=1)
print(qExpectedImprovement(model, y.max(), sampler=sampler)(x[:3, None] * 0.9 + 0.02).sum().item())
print(qLogNoisyExpectedImprovement(model, x, sampler=SobolQMCNormalSampler(torch.Size([16]), seed=1))(x[:2] * 0.9 + 0.02).item())
""",
    "torchsde": """
import torch, torchsde
class Motion(torch.nn.Module):
    def __init__(self, noise_type, sde_type):
        super().__init__()
        self.noise_type, self.sde_type = noise_type, sde_type
        self.drift, self.spread = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    def f(self, t, y):
        return self.drift(y)
    def g(self, t, y):
        return torch.sigmoid(self.spread(y))
start, times = torch.full((3, 2), 0.1), torch.linspace(0, 1, 4)
for sde_type, method, solve in (("ito", "euler", torchsde.sdeint), ("ito", "srk", torchsde.sdeint), ("ito", "milstein", torchsde.sdeint),
        ("stratonovich", "midpoint", torchsde.sdeint_adjoint), ("stratonovich", "reversible_heun", torchsde.sdeint)):
    torch.manual_seed(0)
    motion = Motion("diagonal", sde_type)
    optimizer = torch.optim.Adam(motion.parameters(), lr=0.01)
    for _ in range(2):
        noise = torchsde.BrownianInterval(0.0, 1.0, size=(3, 2), entropy=3, levy_area_approximation="space-time")
        loss = solve(motion, start, times, bm=noise, dt=0.2, method=method).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
""",
    "zuko": """
import torch, zuko
for make in (lambda: zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16,)), lambda: zuko.flows.MAF(3, 2, transforms=2,
    hidden_features=(16,)),
        lambda: zuko.flows.RealNVP(3, 2, transforms=2, hidden_features=(16,)), lambda: zuko.flows.NICE(3, 2, transforms=2,
        hidden_features=(16,)),
        lambda: zuko.flows.SOSPF(3, 2, transforms=1, hidden_features=(16,)), lambda: zuko.flows.NAF(3, 2, transforms=1,
        hidden_features=(16,)),
        lambda: zuko.flows.CNF(3, 2, hidden_features=(16,)), lambda: zuko.flows.GF(3, 2, transforms=2, hidden_features=(16,)),
        lambda: zuko.flows.BPF(3, 2, transforms=1, hidden_features=(16,))):
    torch.manual_seed(0)
    flow = make()
    x, given = torch.randn(16, 3) * 0.5, torch.randn(16, 2)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for _ in range(2):
        loss = -flow(given).log_prob(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    with torch.no_grad():
        print(flow(given[0]).sample((4,)).abs().mean().item())
""",
    "nflows": """
import warnings; warnings.simplefilter("ignore")
import torch
from nflows import distributions, flows, transforms
from nflows.nn import nets
torch.manual_seed(0)
def net(inside, outside):
    return nets.ResidualNet(inside, outside, hidden_features=8, num_blocks=1)
for make in (lambda: transforms.MaskedAffineAutoregressiveTransform(features=4, hidden_features=8),
        lambda: transforms.AffineCouplingTransform(torch.tensor([1, 0, 1, 0]), net),
        lambda: transforms.PiecewiseRationalQuadraticCouplingTransform(torch.tensor([1, 0, 1, 0]), net, tails="linear", tail_bound=3.0),
        lambda: transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(features=4, hidden_features=8, tails="linear"),
        lambda: transforms.LULinear(4)):
    torch.manual_seed(0)
    flow = flows.Flow(transforms.CompositeTransform([make(), transforms.RandomPermutation(4)]), distributions.StandardNormal([4]))
    x = torch.randn(16, 4)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    for _ in range(3):
        loss = -flow.log_prob(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    flow.eval()
    print(flow.sample(3).sum().item())
""",
    "torch_optimizer": """
import warnings; warnings.simplefilter("ignore")
import torch, torch_optimizer
for name in ("AccSGD", "AdaBound", "AdaMod", "Adafactor", "AdamP", "AggMo", "Apollo", "DiffGrad", "LARS", "Lamb", "MADGRAD",
    "NovoGrad", "PID",
        "QHAdam", "QHM", "RAdam", "Ranger", "RangerQH", "RangerVA", "SGDP", "SGDW", "SWATS", "Shampoo", "Yogi"):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = getattr(torch_optimizer, name)(net.parameters(), lr=1e-2)
    x = torch.randn(16, 4)
    for _ in range(3):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
wrapped = torch_optimizer.Lookahead(torch.optim.Adam(net.parameters(), lr=1e-2), k=2, alpha=0.5)
for _ in range(4):
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    wrapped.zero_grad()
    loss.backward()
    wrapped.step()
print(loss.item())
""",
    "pytorch_optimizer": """
import warnings; warnings.simplefilter("ignore")
import torch, pytorch_optimizer
for name in ("AdaBelief", "AdamP", "AdaHessian", "Adan", "ADOPT", "Amos", "ASGD", "CAME", "FTRL", "Lion", "Prodigy", "DAdaptAdam",
    "Ranger21", "ScheduleFreeAdamW",
        "Shampoo", "SophiaH", "StableAdamW", "Tiger", "Muon", "Kate", "GrokFastAdamW", "Fromage", "MARS", "LaProp", "Grams", "Gravity",
        "SRMM", "Yogi",
        "AdEMAMix", "FOCUS", "TAM", "VSGD"):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    make = pytorch_optimizer.load_optimizer(name)
    settings = dict(num_iterations=10) if name == "Ranger21" else {}
    groups = [dict(params=[p for p in net.parameters() if p.ndim == 2], use_muon=True),
        dict(params=[p for p in net.parameters() if p.ndim != 2], use_muon=False)]
    optimizer = make(groups if name == "Muon" else net.parameters(), lr=1e-2, **settings)
    if hasattr(optimizer, "train"):
        optimizer.train()
    x = torch.randn(16, 4)
    for _ in range(4):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward(create_graph=name in ("AdaHessian", "SophiaH"))
        optimizer.step()
    print(loss.item())
net = torch.nn.Linear(4, 1)
sam = pytorch_optimizer.SAM(net.parameters(), torch.optim.SGD, lr=0.05)
for _ in range(3):
    for step in (sam.first_step, sam.second_step):
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        step(zero_grad=True)
    print(loss.item())
for loss in (pytorch_optimizer.BCEFocalLoss(), pytorch_optimizer.LovaszHingeLoss(), pytorch_optimizer.TverskyLoss(),
    pytorch_optimizer.DiceLoss(mode="binary")):
    print(loss(torch.linspace(0, 1, 32).reshape(1, 1, 4, 8), (torch.arange(32) % 2).float().reshape(1, 1, 4, 8)).item())
""",
    "pytorch_metric_learning": """
import warnings; warnings.simplefilter("ignore")
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
torch.manual_seed(0)
x, labels = torch.randn(16, 8, requires_grad=True), torch.arange(16) % 4
for loss in (losses.TripletMarginLoss(), losses.ContrastiveLoss(), losses.NTXentLoss(), losses.SupConLoss(), losses.MultiSimilarityLoss(),
        losses.CircleLoss(), losses.NPairsLoss(), losses.LiftedStructureLoss(), losses.AngularLoss(), losses.FastAPLoss(),
        losses.IntraPairVarianceLoss(), losses.MarginLoss(), losses.SignalToNoiseRatioContrastiveLoss(), losses.TupletMarginLoss(),
        losses.TripletMarginLoss(distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0),
            embedding_regularizer=regularizers.LpRegularizer()),
        losses.ArcFaceLoss(4, 8), losses.CosFaceLoss(4, 8), losses.ProxyAnchorLoss(4, 8), losses.ProxyNCALoss(4, 8),
        losses.SoftTripleLoss(4, 8),
        losses.SubCenterArcFaceLoss(num_classes=4, embedding_size=8), losses.NormalizedSoftmaxLoss(4, 8), losses.VICRegLoss()):
    x.grad = None
    found = loss(x, ref_emb=x.detach() + 0.1) if isinstance(loss, losses.VICRegLoss) else loss(x, labels)
    found.backward()
    print(found.item(), x.grad.norm().item())
for miner in (miners.MultiSimilarityMiner(), miners.TripletMarginMiner(), miners.BatchHardMiner(), miners.PairMarginMiner(),
    miners.DistanceWeightedMiner()):
    torch.manual_seed(1)
    print(*[float(len(part)) for part in miner(x, labels)])
print(losses.CrossBatchMemory(losses.NTXentLoss(), 8, memory_size=32)(x, labels).item())
""",
    "monai": """
import warnings; warnings.simplefilter("ignore")
import torch, monai, numpy
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceFocalLoss, DiceLoss, GeneralizedDiceLoss, TverskyLoss
from monai.metrics import DiceMetric, compute_hausdorff_distance
from monai.networks.nets import UNETR, AttentionUnet, BasicUNet, DenseNet121, SegResNet, SwinUNETR, UNet
from monai.transforms import Compose, RandFlipd, RandGaussianNoised, RandRotate90d, ScaleIntensityd, Spacingd
monai.utils.set_determinism(0)
x = torch.linspace(-1, 1, 2 * 32 * 32).reshape(2, 1, 32, 32)
marks = (torch.arange(2 * 32 * 32) % 3 == 0).float().reshape(2, 1, 32, 32)
for make in (lambda: UNet(2, 1, 1, (4, 8, 16), (2, 2), num_res_units=1), lambda: BasicUNet(2, 1, 1, (4, 4, 8, 8, 16, 4)),
        lambda: SegResNet(2, 8, 1, 1), lambda: AttentionUnet(2, 1, 1, (4, 8, 16), (2, 2))):
    torch.manual_seed(0)
    net = make().eval()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = DiceCELoss(sigmoid=True)(net(x), marks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
with torch.no_grad():
    print(sliding_window_inference(x, (16, 16), 4, net, overlap=0.5).sum().item())
for loss in (DiceLoss(sigmoid=True), DiceFocalLoss(sigmoid=True), GeneralizedDiceLoss(sigmoid=True), TverskyLoss(sigmoid=True)):
    print(loss(x, marks).item())
print(DiceMetric()((x > 0).float(), marks).sum().item(), compute_hausdorff_distance((x > 0).float(), marks,
    include_background=True).sum().item())
change = Compose([ScaleIntensityd("image"), RandFlipd(["image", "label"], prob=0.5, spatial_axis=0), RandRotate90d(["image", "label"],
    prob=0.9),
    RandGaussianNoised("image", prob=1.0)])
change.set_random_state(3)
found = change({"image": monai.data.MetaTensor(x[0]), "label": monai.data.MetaTensor(marks[0])})
print(found["image"].sum().item(), found["label"][0, :5].sum().item(), found["image"].affine.sum().item())
loader = monai.data.DataLoader(monai.data.Dataset([{"image": x[0], "label": marks[0]}] * 4, change), batch_size=2)
print(*[batch["image"].shape[0] for batch in loader])
""",
}
