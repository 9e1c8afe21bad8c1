"""Programs over other people's packages, unmodified under Flambeau in the name of torch; skipped where a package is not installed.

Each program prints numbers. Where PyTorch is installed too, they are compared with the ones it gives.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from packages import programs_of_methods, programs_of_models
from packages.programs_of_models import TRANSFORMERS

ROOT = Path(__file__).parent.parent.parent

PROGRAMS = {
    "transformers.bert": TRANSFORMERS + """
model = transformers.BertForSequenceClassification(transformers.BertConfig(**small, num_labels=3, hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0))
inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=torch.tensor([0, 2]))
train(model, **inputs)
save_and_load(model, input_ids=ids)
""",
    "transformers.gpt2": TRANSFORMERS + """
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **special))
train(model, input_ids=ids, labels=ids)
write(model, ids)
write(model, ids, num_beams=2)
save_and_load(model, input_ids=ids)
""",
    "transformers.llama": TRANSFORMERS + """
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, num_key_value_heads=2, max_position_embeddings=32, **special))
train(model, input_ids=ids, labels=ids)
write(model, ids)
save_and_load(model, input_ids=ids)
""",
    "transformers.t5": TRANSFORMERS + """
model = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2,
    num_heads=4, dropout_rate=0.0, decoder_start_token_id=0, eos_token_id=2, pad_token_id=0))
train(model, input_ids=ids, labels=ids)
write(model, ids)
write(model, ids, num_beams=2)
save_and_load(model, input_ids=ids, decoder_input_ids=ids)
""",
    "transformers.vit": TRANSFORMERS + """
model = transformers.ViTForImageClassification(transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=48, image_size=16, patch_size=4, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
images = torch.randn(2, 3, 16, 16)
train(model, pixel_values=images, labels=torch.tensor([0, 2]))
save_and_load(model, pixel_values=images)
""",
    "transformers.mixtral": TRANSFORMERS + """
model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**small, num_key_value_heads=2, num_local_experts=4,
    max_position_embeddings=32, **special))
train(model, input_ids=ids, labels=ids)
write(model, ids)
save_and_load(model, input_ids=ids)
""",
    "transformers.clip": TRANSFORMERS + """
text = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
    max_position_embeddings=16, **special)
vision = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4)
model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
images = torch.randn(2, 3, 16, 16)
train(model, input_ids=ids, pixel_values=images, return_loss=True)
save_and_load(model, input_ids=ids, pixel_values=images)
""",
    "transformers.whisper": TRANSFORMERS + """
model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(vocab_size=99, d_model=32, encoder_layers=2,
    decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
    num_mel_bins=8, max_source_positions=20, max_target_positions=16, dropout=0.0, decoder_start_token_id=1, suppress_tokens=None,
    begin_suppress_tokens=None, **special))
sound = torch.randn(2, 8, 40)
train(model, input_features=sound, labels=ids)
write(model, sound)
save_and_load(model, input_features=sound, decoder_input_ids=ids)
""",
    "transformers.trainer": TRANSFORMERS + """
import contextlib, io
class Lines(torch.utils.data.Dataset):
    lines = torch.randint(3, 99, (16, 7))
    def __len__(self):
        return len(self.lines)
    def __getitem__(self, i):
        return dict(input_ids=self.lines[i], labels=self.lines[i])
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **special))
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
    settings = transformers.TrainingArguments(folder, num_train_epochs=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        logging_steps=2, save_steps=4, seed=1, disable_tqdm=True)
    trainer = transformers.Trainer(model, settings, train_dataset=Lines(), eval_dataset=Lines())
    result = trainer.train()
    numbers = [result.training_loss, trainer.evaluate()["eval_loss"], *(e["loss"] for e in trainer.state.log_history if "loss" in e)]
    again = transformers.Trainer(model, settings, train_dataset=Lines(), eval_dataset=Lines())
    again.train(resume_from_checkpoint=folder + "/checkpoint-4")
    numbers.append(again.evaluate()["eval_loss"])
print(*numbers)
""",
    "einops": """
import torch
from einops import einsum, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
torch.manual_seed(0)
x = torch.randn(2, 3, 4, 4)
print(*rearrange(x, "b c (h i) (w j) -> b (c h w) i j", i=2, j=2).sum((0, 1)).flatten().tolist())
print(*reduce(x, "b c h w -> b c", "max").flatten().tolist(), *repeat(x[0, 0, 0], "w -> (w 2)").tolist())
print(einsum(x, x, "b c h w, b d h w -> b c d").sum().item())
net = torch.nn.Sequential(Rearrange("b c h w -> b (h w) c"), torch.nn.Linear(3, 5), Reduce("b n c -> b c", "mean"))
net(x).square().sum().backward()
print(*net[1].weight.grad.flatten().tolist())
""",
    "torchmetrics": """
import torch, torchmetrics
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy, MulticlassConfusionMatrix
torch.manual_seed(0)
scores, labels = torch.randn(20, 3).softmax(-1), torch.randint(0, 3, (20,))
metric = MulticlassAccuracy(num_classes=3)
metric.update(scores, labels)
metric.update(scores[:7], labels[:7])
print(metric.compute().item(), *MulticlassConfusionMatrix(3)(scores, labels).flatten().tolist())
print(*torchmetrics.CalibrationError("multiclass", num_classes=3)(scores, labels).flatten().tolist())
x, y = torch.randn(40), torch.randn(40)
for metric in (torchmetrics.SpearmanCorrCoef(), torchmetrics.KendallRankCorrCoef(), torchmetrics.ExplainedVariance()):
    print(metric(x, y).item())
images = torch.rand(2, 2, 3, 16, 16)
print(torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0)(*images).item())
print(torchmetrics.text.Perplexity()(torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5))).item())
print(torchmetrics.retrieval.RetrievalMAP()(x, y > 0, indexes=torch.arange(40) // 8).item())
together = torchmetrics.MetricCollection([MulticlassAccuracy(3), torchmetrics.CohenKappa("multiclass", num_classes=3)])
together.update(scores, labels)
print(*[value.item() for value in together.compute().values()])
print(BinaryAUROC()(scores[:, 0], (labels == 0).long()).item(), torchmetrics.R2Score()(scores[:, 0], scores[:, 1]).item())
""",
    "torchdiffeq": """
import torch
from torchdiffeq import odeint, odeint_adjoint
torch.manual_seed(0)
class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    def forward(self, t, y):
        return self.net(y)
field = Field()
for solve in (odeint, odeint_adjoint):
    field.zero_grad()
    loss = solve(field, torch.tensor([[2.0, 0.0]]), torch.linspace(0, 1, 5), method="dopri5").square().mean()
    loss.backward()
    print(loss.item(), field.net[0].weight.grad.norm().item())
""",
    "gpytorch": """
import math, torch, gpytorch
torch.manual_seed(0)
x = torch.linspace(0, 1, 30)
y = torch.sin(x * 2 * math.pi) + 0.1 * torch.randn(30)
class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(10):
    optimizer.zero_grad()
    loss = -mll(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
model.eval(), likelihood.eval()
with torch.no_grad():
    found = likelihood(model(torch.linspace(0, 1, 5)))
    print(*found.mean.tolist(), *found.variance.tolist())
""",
    "gpytorch.variational": """
import torch, gpytorch
torch.manual_seed(0)
x = torch.rand(60, 1)
y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(60)
class Model(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        found = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, found, learn_inducing_locations=True))
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
torch.set_default_dtype(torch.float64)
x, y = x.double(), y.double()
model, likelihood = Model(x[:10].clone()), gpytorch.likelihoods.GaussianLikelihood()
optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=60)
for _ in range(5):
    optimizer.zero_grad()
    loss = -mll(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
model.eval(), likelihood.eval()
with torch.no_grad():
    found = likelihood(model(x[:3]))
    print(*found.mean.tolist(), *found.variance.tolist())
""",
    "skorch": """
import numpy, torch
from skorch import NeuralNetClassifier
torch.manual_seed(0)
x = numpy.random.RandomState(0).randn(100, 5).astype("float32")
y = (x[:, 0] > 0).astype("int64")
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 10), torch.nn.ReLU(), torch.nn.Linear(10, 2), torch.nn.Softmax(-1))
    def forward(self, x):
        return self.layers(x)
net = NeuralNetClassifier(Net, max_epochs=5, lr=0.1, iterator_train__shuffle=True, verbose=0)
net.fit(x, y)
print(*net.history[:, "train_loss"], *net.history[:, "valid_loss"])
""",
    "pyro": """
import torch, pyro
import pyro.distributions as dist
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
pyro.set_rng_seed(0)
data = torch.randn(50) + 2
def model(data):
    mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
    with pyro.plate("data", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)
guide = AutoNormal(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
for step in range(20):
    print(svi.step(data))
print(guide.median()["mean"].item())
""",
    "pyro.mcmc": """
import torch, pyro
import pyro.distributions as dist
from pyro.infer import MCMC, NUTS, SVI, TraceEnum_ELBO, config_enumerate
pyro.set_rng_seed(0)
torch.set_default_dtype(torch.float64)
data = torch.randn(30) + 2
def model(data):
    mean = pyro.sample("mean", dist.Normal(0.0, 5.0))
    with pyro.plate("data", len(data)):
        pyro.sample("x", dist.Normal(mean, 1.0), obs=data)
mcmc = MCMC(NUTS(model), num_samples=10, warmup_steps=5, disable_progbar=True)
mcmc.run(data)
print(*mcmc.get_samples()["mean"].tolist())
@config_enumerate
def mixture(data):
    weights = pyro.param("weights", torch.tensor([0.4, 0.6]), constraint=dist.constraints.simplex)
    means = pyro.param("means", torch.tensor([0.0, 3.0]))
    with pyro.plate("data", len(data)):
        pyro.sample("x", dist.Normal(means[pyro.sample("which", dist.Categorical(weights))], 1.0), obs=data)
pyro.clear_param_store()
svi = SVI(mixture, lambda data: None, pyro.optim.Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1))
for _ in range(5):
    print(svi.step(data))
""",
    "keras.data_loader": """
import os, warnings; warnings.simplefilter("ignore")
os.environ["KERAS_BACKEND"] = "torch"
import keras, torch
torch.manual_seed(0)
keras.utils.set_random_seed(0)
x = torch.randn(20, 4)
y = (x.sum(1) > 0).long()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=5)
model = keras.Sequential([keras.layers.Dense(3, activation="relu"), keras.layers.Dense(2)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
print(*model.fit(loader, epochs=2, verbose=0).history["loss"])
print(*model.fit(x, y, epochs=2, shuffle=False, verbose=0).history["loss"])
print(model.evaluate(loader, verbose=0))
""",
    "opt_einsum": """
import opt_einsum, torch
torch.manual_seed(0)
a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5, 6, requires_grad=True)
found = opt_einsum.contract("ij,jk,kl->il", a, b, c)
print(found.sum().item())
found.square().sum().backward()
print(c.grad.sum().item(), opt_einsum.contract_expression("ab,bc->ca", a.shape, b.shape)(a, b)[0, 0].item())
""",
    "keras": """
import os, tempfile, warnings; warnings.simplefilter("ignore")
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
keras.utils.set_random_seed(0)
def fill(model):
    for i, weights in enumerate(model.trainable_weights):
        weights.assign(numpy.random.RandomState(i).randn(*weights.shape).astype("float32") * 0.3)
draw = numpy.random.RandomState(0)
x = draw.randn(64, 8, 8, 1).astype("float32")
y = (x.mean((1, 2, 3)) > 0).astype("int64")
layers = keras.layers
model = keras.Sequential([layers.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.BatchNormalization(),
    layers.MaxPooling2D(), layers.Flatten(), layers.Dense(2, activation="softmax")])
fill(model)
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
told = model.fit(x, y, epochs=2, batch_size=16, verbose=0, shuffle=False, validation_split=0.25).history
print(*told["loss"], *told["val_loss"], *told["accuracy"])
with tempfile.TemporaryDirectory() as folder:
    model.save(folder + "/model.keras")
    again = keras.models.load_model(folder + "/model.keras")
    print(abs(again.predict(x, verbose=0) - model.predict(x, verbose=0)).max())
model = keras.Sequential([layers.Input((5,)), layers.Embedding(20, 8), layers.LSTM(6, return_sequences=True), layers.GRU(4),
    layers.Dense(1)])
fill(model)
model.compile(optimizer="sgd", loss="mse")
x, y = draw.randint(0, 20, (32, 5)), draw.randn(32, 1).astype("float32")
print(*model.fit(x, y, epochs=2, verbose=0, shuffle=False).history["loss"])
""",
    "safetensors": """
import tempfile, torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
torch.manual_seed(0)
tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "half": torch.randn(4).half(), "brain": torch.randn(4).bfloat16(),
    "bits": torch.tensor([True, False]), "none": torch.empty(0, 3)}
def same(found):
    return all(torch.equal(tensors[name], found[name]) and tensors[name].dtype == found[name].dtype for name in tensors) + 0
with tempfile.TemporaryDirectory() as folder:
    save_file(tensors, folder + "/tensors", metadata={"format": "pt"})
    print(same(load_file(folder + "/tensors")), same(load(save(tensors))))
    with safe_open(folder + "/tensors", framework="pt") as file:
        print(len(list(file.keys())), file.get_slice("a")[1:, :2].sum().item(), file.get_tensor("b").sum().item())
    net, other = torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    save_model(net, folder + "/net")
    load_model(other, folder + "/net")
    print(torch.equal(net.weight, other.weight) + 0)
""",
    "torchvision": """
import torch, torchvision
from torchvision.transforms import v2
torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 48, 48)), torch.tensor([0, 2, 1, 1]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
for name, settings in (("densenet121", {}), ("vit_b_16", {"image_size": 32})):
    model = torchvision.models.get_model(name, num_classes=3, **settings).eval()
    with torch.no_grad():
        print(*model(torch.randn(1, 3, 32, 32)).flatten().tolist())
from torchvision.models.feature_extraction import create_feature_extractor
model = torchvision.models.resnet18(num_classes=3).eval()
for features in create_feature_extractor(model, ["layer1", "layer4.1.relu"])(torch.randn(1, 3, 32, 32)).values():
    print(features.sum().item())
change = v2.Compose([v2.RandomHorizontalFlip(), v2.Resize(8), v2.Normalize([0.5] * 3, [0.2] * 3)])
print(change(torch.rand(3, 16, 16)).sum().item())
print(torchvision.ops.box_iou(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 1, 3, 3]])).item())
""",
    "timm": """
import torch, timm, timm.optim
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
for name, settings in (("resnet18", {}), ("convnext_atto", {}), ("mobilenetv3_small_100", {"drop_rate": 0.0})):
    model = timm.create_model(name, num_classes=3, **settings)
    optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=1e-3)
    x = torch.randn(2, 3, 64, 64)
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([0, 2]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
""",
    "accelerate": """
import tempfile, torch
from accelerate import Accelerator
from accelerate.utils import ProfileKwargs, set_seed
set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, kwargs_handlers=[ProfileKwargs(activities=["cpu"])])
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
for _ in range(2):
    for x, y in loader:
        with accelerator.accumulate(net):
            loss = torch.nn.functional.mse_loss(net(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    print(loss.item(), accelerator.gather(loss).item())
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    before = [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        [p.zero_() for p in net.parameters()]
    accelerator.load_state(folder)
    print(all(torch.equal(p, q) for p, q in zip(net.parameters(), before)) + 0)
with accelerator.profile() as profile:
    net(torch.ones(2, 4))
print(sum(e.name == "aten::linear" for e in profile.events()))
""",
    "lightning": """
import contextlib, io, logging, tempfile, warnings; warnings.simplefilter("ignore")
import torch, lightning as L
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class Net(L.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, number):
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss
    def validation_step(self, batch, number):
        self.log("validation", torch.nn.functional.mse_loss(self(batch[0]), batch[1]))
    def predict_step(self, batch, number):
        return self(batch[0])
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}
numbers = []
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), tempfile.TemporaryDirectory() as folder:
    L.seed_everything(0)
    x = torch.randn(32, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    def loader(shuffle):
        return torch.utils.data.DataLoader(data, batch_size=8, shuffle=shuffle)
    quiet = dict(accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False)
    best = ModelCheckpoint(monitor="validation", dirpath=folder)
    net = Net()
    trainer = L.Trainer(max_epochs=2, callbacks=[best, EarlyStopping("validation")], gradient_clip_val=1.0,
        accumulate_grad_batches=2, profiler="pytorch", **quiet)
    trainer.fit(net, loader(True), loader(False))
    numbers += [float(v) for v in trainer.callback_metrics.values()] + [trainer.global_step]
    trainer = L.Trainer(**quiet)
    numbers.append(float(torch.cat(trainer.predict(net, loader(False))).sum()))
    again = Net.load_from_checkpoint(best.best_model_path)
    numbers.append(float(torch.equal(again.net[0].weight, net.net[0].weight)))
    trainer = L.Trainer(max_epochs=3, **quiet, enable_checkpointing=False)
    trainer.fit(net, loader(True), loader(False), ckpt_path=best.best_model_path)
    numbers += [float(v) for v in trainer.callback_metrics.values()]
    fabric = L.Fabric(accelerator="cpu")
    model, optimizer = fabric.setup(net.net, torch.optim.SGD(net.net.parameters(), lr=0.1))
    fabric.backward(model(x).sum())
    optimizer.step()
    fabric.save(folder + "/fabric", {"model": model, "optimizer": optimizer})
    fabric.load(folder + "/fabric", {"model": model, "optimizer": optimizer})
    numbers.append(float(model(x).sum()))
    lazily = L.fabric.utilities.load._lazy_load(folder + "/fabric")
    lazily = L.fabric.utilities.load._materialize_tensors(lazily)
    numbers.append(float(lazily["model"]["0.weight"].sum()))
print(*numbers)
""",
    "torch_geometric": """
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool
torch.manual_seed(0)
def graph(nodes):
    pairs = torch.randint(0, nodes, (2, 3 * nodes))
    return Data(x=torch.randn(nodes, 5), edge_index=torch.cat([pairs, pairs.flip(0)], 1), y=torch.randint(0, 3, (1,)))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([GCNConv(5, 8), SAGEConv(8, 8), GATConv(8, 8, heads=2, concat=False)])
        self.head = torch.nn.Linear(8, 3)
    def forward(self, x, edge_index, batch):
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch))
graphs = [graph(6 + i) for i in range(8)]
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(3):
    for batch in DataLoader(graphs, batch_size=4):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(batch.x, batch.edge_index, batch.batch), batch.y)
        loss.backward()
        optimizer.step()
        print(loss.item())
net.eval()
print(*net(graphs[0].x, graphs[0].edge_index, None).flatten().tolist())
""",
} | programs_of_models.PROGRAMS | programs_of_methods.PROGRAMS
# Packages that another one imports.
NEEDS = {"diffusers": ("transformers",), "timm": ("torchvision",)}
# torchvision's library in C++ that does not load beside a PyTorch of another build leaves the two operators undeclared that its
# Python registers more of when it is imported. Declared here, all that is written in Python can be compared.
DECLARE_OPERATORS = """
import ctypes, pathlib, importlib.util, torch
try:
    for path in pathlib.Path(importlib.util.find_spec("torchvision").origin).parent.glob("_C*.so"):
        ctypes.CDLL(str(path))
except OSError:
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def told(program: str, folder: Path, *start: str) -> list[float]:
    """The numbers that `program` prints; files that a package leaves where it runs lie in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAMBEAU_AS")}
    kept["PYTHONPATH"] = os.pathsep.join((str(ROOT / "framework"), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")))
    kept |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *start, "-c", program]
    done = subprocess.run(command, env=kept, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_over_a_package_runs_with_the_numbers_of_pytorch(name, tmp_path):
    package = name.partition(".")[0]
    for needed in (package, *NEEDS.get(package, ())):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")

    numbers = told(PROGRAMS[name], tmp_path, "-m", "flambeau")

    assert numbers
    assert all(map(math.isfinite, numbers))
    if importlib.util.find_spec("torch") is not None:
        # Many packages import torchvision where it is.
        before = DECLARE_OPERATORS if importlib.util.find_spec("torchvision") is not None else ""
        assert numbers == pytest.approx(told(before + PROGRAMS[name], tmp_path), rel=1e-4, abs=1e-5)


