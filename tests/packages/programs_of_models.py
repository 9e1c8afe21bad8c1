"""More models of transformers, diffusion and language models, and what fine-tunes them."""

from __future__ import annotations

# What programs over transformers begin with.
TRANSFORMERS = """
import warnings; warnings.simplefilter("ignore")
import tempfile, torch, transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
def train(model, steps=3, **inputs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
def write(model, ids, **settings):
    model.eval()
    print(*model.generate(ids, max_new_tokens=6, do_sample=False, **settings).flatten().tolist())
def save_and_load(model, **inputs):
    model.eval()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder).eval()
    with torch.no_grad():
        print((model(**inputs)[0] - again(**inputs)[0]).abs().max().item())
ids = torch.randint(3, 99, (2, 7))
small = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
special = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
"""

PROGRAMS = {
    "transformers.qwen2": TRANSFORMERS + """
model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**small, num_key_value_heads=2, max_position_embeddings=64, **special))
train(model, input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids))
write(model, ids)
write(model, ids, num_beams=3, num_return_sequences=2, length_penalty=0.5)
torch.manual_seed(1)
print(*model.generate(ids, max_new_tokens=6, do_sample=True, top_k=20, top_p=0.9, temperature=0.8).flatten().tolist())
print(*model.generate(ids[:1], max_new_tokens=6, do_sample=False, prompt_lookup_num_tokens=2).flatten().tolist())
helper = transformers.Qwen2ForCausalLM(model.config).eval()
print(*model.generate(ids[:1], max_new_tokens=8, do_sample=False, assistant_model=helper).flatten().tolist())
write(model, ids, cache_implementation="static")
write(model, ids, repetition_penalty=1.3, no_repeat_ngram_size=2, min_new_tokens=3)
save_and_load(model, input_ids=ids)
""",
    "transformers.attention": TRANSFORMERS + """
for kind in ("eager", "sdpa"):
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, num_key_value_heads=2, max_position_embeddings=32,
        attn_implementation=kind, **special))
    model.gradient_checkpointing_enable()
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    train(model, input_ids=ids, labels=ids, attention_mask=mask)
    model.gradient_checkpointing_disable()
    write(model, ids, attention_mask=mask)
    print(model(ids, output_hidden_states=True, output_attentions=kind == "eager").hidden_states[1].sum().item())
    model.bfloat16()
    with torch.no_grad():
        print(model(ids).logits.float().norm().item() // 0.1)
compiled = torch.compile(model.float())
print(compiled(ids).logits.norm().item())
with torch.autocast("cpu", dtype=torch.bfloat16):
    print(float(model(ids).logits.dtype == torch.bfloat16))
""",
    "transformers.decoders": TRANSFORMERS + """
few = dict(**small, num_key_value_heads=2, max_position_embeddings=32, **special)
for make, config in (
    (transformers.GemmaForCausalLM, transformers.GemmaConfig(**few, head_dim=8)),
    (transformers.Gemma2ForCausalLM, transformers.Gemma2Config(**few, head_dim=8, sliding_window=4)),
    (transformers.PhiForCausalLM, transformers.PhiConfig(**few)),
    (transformers.Phi3ForCausalLM, transformers.Phi3Config(**few)),
    (transformers.MistralForCausalLM, transformers.MistralConfig(**few, sliding_window=4)),
    (transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**few, head_dim=8)),
    (transformers.FalconForCausalLM, transformers.FalconConfig(**{**small, "num_kv_heads": 1}, **special)),
    (transformers.BloomForCausalLM, transformers.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4, **special)),
    (transformers.OPTForCausalLM, transformers.OPTConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=32, dropout=0.0, **special)),
    (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig(**small, max_position_embeddings=32, **special)),
    (transformers.StableLmForCausalLM, transformers.StableLmConfig(**few)),
    (transformers.Starcoder2ForCausalLM, transformers.Starcoder2Config(**few)),
    (transformers.CohereForCausalLM, transformers.CohereConfig(**few)),
    (transformers.OlmoForCausalLM, transformers.OlmoConfig(**few)),
):
    torch.manual_seed(0)
    model = make(config)
    train(model, 2, input_ids=ids, labels=ids)
    write(model, ids)
""",
    "transformers.mamba": TRANSFORMERS + """
for make, config in (
    (transformers.MambaForCausalLM, transformers.MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8,
        **special)),
    (transformers.Mamba2ForCausalLM, transformers.Mamba2Config(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8,
        num_heads=8, head_dim=8, n_groups=2, chunk_size=4, **special)),
    (transformers.RwkvForCausalLM, transformers.RwkvConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, **special)),
):
    torch.manual_seed(0)
    model = make(config)
    train(model, 2, input_ids=ids, labels=ids)
    write(model, ids)
""",
    "transformers.encoders": TRANSFORMERS + """
plain = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
marks = torch.tensor([0, 2])
for make, config in (
    (transformers.RobertaForSequenceClassification, transformers.RobertaConfig(**small, **plain, num_labels=3,
        max_position_embeddings=40)),
    (transformers.XLMRobertaForSequenceClassification, transformers.XLMRobertaConfig(**small, **plain, num_labels=3,
        max_position_embeddings=40)),
    (transformers.DebertaForSequenceClassification, transformers.DebertaConfig(**small, **plain, num_labels=3, relative_attention=True,
        pos_att_type=["c2p", "p2c"])),
    (transformers.DebertaV2ForSequenceClassification, transformers.DebertaV2Config(**small, **plain, num_labels=3,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"], position_buckets=4)),
    (transformers.ElectraForSequenceClassification, transformers.ElectraConfig(**small, **plain, num_labels=3, embedding_size=16)),
    (transformers.AlbertForSequenceClassification, transformers.AlbertConfig(**small, **plain, num_labels=3, embedding_size=16,
        classifier_dropout_prob=0.0)),
    (transformers.DistilBertForSequenceClassification, transformers.DistilBertConfig(vocab_size=99, dim=32, n_layers=2, n_heads=4,
        hidden_dim=48, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=3)),
    (transformers.ModernBertForSequenceClassification, transformers.ModernBertConfig(**small, num_labels=3, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=4)),
    (transformers.LongformerForSequenceClassification, transformers.LongformerConfig(**small, **plain, num_labels=3, attention_window=4,
        max_position_embeddings=40, pad_token_id=1)),
    (transformers.MPNetForSequenceClassification, transformers.MPNetConfig(**small, **plain, num_labels=3, max_position_embeddings=40)),
    (transformers.FNetForSequenceClassification, transformers.FNetConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2,
        intermediate_size=48, hidden_dropout_prob=0.0, num_labels=3)),
):
    torch.manual_seed(0)
    model = make(config)
    train(model, 2, input_ids=ids, labels=marks)
    save_and_load(model, input_ids=ids)
for make in (transformers.BertForMaskedLM, transformers.BertForTokenClassification):
    model = make(transformers.BertConfig(**small, **plain, num_labels=99))
    train(model, 2, input_ids=ids, labels=ids)
model = transformers.BertForQuestionAnswering(transformers.BertConfig(**small, **plain))
train(model, 2, input_ids=ids, start_positions=marks, end_positions=marks + 1)
""",
    "transformers.seq2seq": TRANSFORMERS + """
sizes = dict(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0, max_position_embeddings=32, decoder_start_token_id=2, **special)
for make, config in (
    (transformers.BartForConditionalGeneration, transformers.BartConfig(**sizes)),
    (transformers.MBartForConditionalGeneration, transformers.MBartConfig(**sizes)),
    (transformers.PegasusForConditionalGeneration, transformers.PegasusConfig(**sizes)),
    (transformers.MarianMTModel, transformers.MarianConfig(**sizes)),
):
    torch.manual_seed(0)
    model = make(config)
    train(model, 2, input_ids=ids, labels=ids)
    write(model, ids)
    write(model, ids, num_beams=3, early_stopping=True)
encoder = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16,
    patch_size=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
decoder = transformers.GPT2Config(vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
    attn_pdrop=0.0, add_cross_attention=True, is_decoder=True, **special)
model = transformers.VisionEncoderDecoderModel(transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
model.config.decoder_start_token_id, model.config.pad_token_id = 1, 0
images = torch.randn(2, 3, 16, 16)
train(model, 2, pixel_values=images, labels=ids)
model.eval()
print(*model.generate(images, max_new_tokens=5, do_sample=False, decoder_start_token_id=1).flatten().tolist())
""",
    "transformers.vision": TRANSFORMERS + """
images, marks = torch.randn(2, 3, 32, 32), torch.tensor([0, 2])
sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=32, patch_size=8, num_labels=3)
for make, config in (
    (transformers.SwinForImageClassification, transformers.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2],
        num_heads=[2, 4], window_size=4, num_labels=3, drop_path_rate=0.0)),
    (transformers.Dinov2ForImageClassification, transformers.Dinov2Config(**sizes)),
    (transformers.DeiTForImageClassification, transformers.DeiTConfig(**sizes, hidden_dropout_prob=0.0)),
    (transformers.BeitForImageClassification, transformers.BeitConfig(**sizes, drop_path_rate=0.0, use_relative_position_bias=True)),
    (transformers.ConvNextForImageClassification, transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
        num_labels=3)),
    (transformers.ResNetForImageClassification, transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
        layer_type="basic", num_labels=3)),
):
    torch.manual_seed(0)
    model = make(config)
    train(model, 2, pixel_values=images, labels=marks)
    save_and_load(model, pixel_values=images)
model = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
    num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, num_labels=3, drop_path_rate=0.0, classifier_dropout_prob=0.0,
    hidden_dropout_prob=0.0))
train(model, 2, pixel_values=images, labels=torch.randint(0, 3, (2, 32, 32)))
model = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**{**sizes, "num_labels": 2}, decoder_hidden_size=16,
    decoder_num_hidden_layers=1, decoder_num_attention_heads=2, decoder_intermediate_size=24))
train(model, 2, pixel_values=images)
""",
    "transformers.detection": TRANSFORMERS + """
images = torch.randn(2, 3, 64, 64)
backbone = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], layer_type="basic",
    out_features=["stage4"])
model = transformers.DetrForObjectDetection(transformers.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
    backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=5, num_labels=3, dropout=0.0))
marks = [dict(class_labels=torch.tensor([0, 2]), boxes=torch.rand(2, 4) * 0.3 + 0.2), dict(class_labels=torch.tensor([1]),
    boxes=torch.rand(1, 4) * 0.3 + 0.2)]
train(model, 2, pixel_values=images, labels=marks)
model.eval()
with torch.no_grad():
    print(model(images).pred_boxes.sum().item())
vision = transformers.SamVisionConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8,
    mlp_dim=48, output_channels=16, num_pos_feats=8, window_size=2, global_attn_indexes=[1])
model = transformers.SamModel(transformers.SamConfig(vision_config=vision,
    prompt_encoder_config=transformers.SamPromptEncoderConfig(hidden_size=16, image_size=32, patch_size=8, mask_input_channels=4),
    mask_decoder_config=transformers.SamMaskDecoderConfig(hidden_size=16, mlp_dim=24, num_hidden_layers=1, num_attention_heads=2,
        iou_head_hidden_dim=16)))
found = model(pixel_values=torch.randn(1, 3, 32, 32), input_points=torch.tensor([[[[8.0, 9.0]]]]), multimask_output=False)
found.pred_masks.square().mean().backward()
print(found.iou_scores.item(), found.pred_masks.sum().item(), model.mask_decoder.iou_token.weight.grad.norm().item())
""",
    "transformers.audio": TRANSFORMERS + """
sizes = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, conv_dim=(16, 16),
    conv_stride=(5, 4), conv_kernel=(10, 8), num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
    hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0, activation_dropout=0.0, final_dropout=0.0, layerdrop=0.0,
    apply_spec_augment=False, ctc_zero_infinity=True)
sound, words = torch.randn(2, 1200), torch.randint(3, 31, (2, 5))
for make, config in (
    (transformers.Wav2Vec2ForCTC, transformers.Wav2Vec2Config(**sizes)),
    (transformers.HubertForCTC, transformers.HubertConfig(**sizes)),
    (transformers.WavLMForCTC, transformers.WavLMConfig(**sizes)),
):
    torch.manual_seed(0)
    model = make(config)
    train(model, 2, input_values=sound, labels=words)
    save_and_load(model, input_values=sound)
model = transformers.ASTForAudioClassification(transformers.ASTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=48, patch_size=4, max_length=24, num_mel_bins=16, num_labels=3, frequency_stride=4, time_stride=4))
train(model, 2, input_values=torch.randn(2, 24, 16), labels=torch.tensor([0, 2]))
model = transformers.VitsModel(transformers.VitsConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    ffn_dim=24, flow_size=16, spectrogram_bins=17, upsample_initial_channel=16, upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8],
    resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], wavenet_dilation_rate=1, prior_encoder_num_wavenet_layers=1,
    posterior_encoder_num_wavenet_layers=1, duration_predictor_num_flows=1, duration_predictor_filter_channels=8,
    depth_separable_channels=2, depth_separable_num_layers=1, prior_encoder_num_flows=1)).eval()
with torch.no_grad():
    print(model(torch.randint(1, 39, (1, 6))).waveform.shape[-1])
""",
    "diffusers": """
import warnings; warnings.simplefilter("ignore")
import tempfile, torch, diffusers
from diffusers import AutoencoderKL, DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DConditionModel, UNet2DModel
from diffusers.training_utils import EMAModel
diffusers.utils.logging.set_verbosity_error()
diffusers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
net = UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)
scheduler = DDPMScheduler(num_train_timesteps=20)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = diffusers.optimization.get_cosine_schedule_with_warmup(optimizer, 1, 4)
average = EMAModel(net.parameters(), decay=0.9)
images = torch.randn(4, 3, 8, 8)
for _ in range(3):
    noise, steps = torch.randn_like(images), torch.randint(0, 20, (4,))
    loss = torch.nn.functional.mse_loss(net(scheduler.add_noise(images, noise, steps), steps).sample, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    average.step(net.parameters())
    print(loss.item())
average.copy_to(net.parameters())
pipeline = DDPMPipeline(net, scheduler)
pipeline.set_progress_bar_config(disable=True)
with tempfile.TemporaryDirectory() as folder:
    pipeline.save_pretrained(folder)
    again = DDPMPipeline.from_pretrained(folder)
again.set_progress_bar_config(disable=True)
for p in (pipeline, again):
    print(*p(batch_size=1, num_inference_steps=4, generator=torch.Generator().manual_seed(3), output_type="np").images.flatten()[:12])
sampler = DDIMScheduler(num_train_timesteps=20)
sampler.set_timesteps(5)
x = torch.randn(1, 3, 8, 8)
with torch.no_grad():
    for t in sampler.timesteps:
        x = sampler.step(net(x, t).sample, t, x).prev_sample
print(*x.flatten()[:5].tolist())
torch.manual_seed(0)
net = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
    norm_num_groups=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=16, attention_head_dim=4)
coder = AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4)
net.enable_gradient_checkpointing()
latents = coder.encode(torch.randn(2, 3, 16, 16)).latent_dist.sample()
loss = net(latents, torch.tensor([1, 5]), torch.randn(2, 3, 16)).sample.square().mean() + coder.decode(latents).sample.square().mean()
loss.backward()
print(loss.item(), coder.encoder.conv_in.weight.grad.norm().item(), net.conv_in.weight.grad.norm().item())
""",
    "diffusers.schedulers": """
import warnings; warnings.simplefilter("ignore")
import torch, diffusers
torch.manual_seed(0)
start, weights = torch.randn(1, 3, 4, 4), torch.randn(3, 3)
for name in ("DDIMScheduler", "DDPMScheduler", "DEISMultistepScheduler", "DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler",
        "EulerAncestralDiscreteScheduler", "EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler", "HeunDiscreteScheduler",
        "KDPM2AncestralDiscreteScheduler", "KDPM2DiscreteScheduler", "LCMScheduler", "LMSDiscreteScheduler", "PNDMScheduler",
        "UniPCMultistepScheduler", "EDMEulerScheduler"):
    scheduler = getattr(diffusers, name)()
    scheduler.set_timesteps(6)
    x = start * scheduler.init_noise_sigma if hasattr(scheduler, "init_noise_sigma") else start
    generator = torch.Generator().manual_seed(1)
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        found = torch.einsum("bchw,cd->bdhw", scaled, weights).tanh() * 0.1
        stochastic = {"generator": generator} if "generator" in scheduler.step.__code__.co_varnames else {}
        x = scheduler.step(found, t, x, **stochastic).prev_sample
    print(x.sum().item(), x.abs().mean().item())
""",
    "diffusers.stable_diffusion": """
import warnings; warnings.simplefilter("ignore")
import torch, diffusers, transformers
from diffusers import AutoencoderKL, DiTTransformer2DModel, FluxTransformer2DModel, PNDMScheduler
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
diffusers.utils.logging.set_verbosity_error()
torch.manual_seed(0)
net = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
    norm_num_groups=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=16, attention_head_dim=4)
coder = AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
    up_block_types=("UpDecoderBlock2D",) * 2,
    block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4, sample_size=16)
text = transformers.CLIPTextModel(transformers.CLIPTextConfig(vocab_size=99, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=24, max_position_embeddings=8))
pipeline = StableDiffusionPipeline(vae=coder, text_encoder=text, tokenizer=None, unet=net, scheduler=PNDMScheduler(skip_prk_steps=True),
    safety_checker=None, feature_extractor=None, requires_safety_checker=False)
pipeline.set_progress_bar_config(disable=True)
words = text(torch.randint(0, 99, (2, 1, 8))[0])[0]
with torch.no_grad():
    for settings in (dict(), dict(guidance_scale=1.0, eta=0.5)):
        images = pipeline(prompt_embeds=words, negative_prompt_embeds=words.flip(1), num_inference_steps=3, output_type="np",
            height=16, width=16, generator=torch.Generator().manual_seed(2), **settings).images
        print(images.sum(), *images.flatten()[:6])
model = DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8,
    norm_num_groups=4, num_embeds_ada_norm=20)
loss = model(torch.randn(2, 4, 8, 8), timestep=torch.tensor([1, 2]), class_labels=torch.tensor([3, 4])).sample.square().mean()
loss.backward()
print(loss.item(), model.transformer_blocks[0].attn1.to_q.weight.grad.norm().item())
model = FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
    num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8))
loss = model(hidden_states=torch.randn(1, 16, 4), encoder_hidden_states=torch.randn(1, 6, 32), pooled_projections=torch.randn(1, 32),
    timestep=torch.tensor([0.5]), img_ids=torch.zeros(16, 3), txt_ids=torch.zeros(6, 3)).sample.square().mean()
loss.backward()
print(loss.item(), model.x_embedder.weight.grad.norm().item())
""",
    "peft": """
import warnings; warnings.simplefilter("ignore")
import tempfile, peft, torch, transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
special = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
def base():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64, **special))
torch.manual_seed(0)
ids = torch.randint(3, 99, (2, 7))
where = dict(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
for config in (
    peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, **where),
    peft.LoraConfig(r=4, use_dora=True, **where),
    peft.LoraConfig(r=4, use_rslora=True, init_lora_weights="pissa", **where),
    peft.IA3Config(feedforward_modules=[], **where),
    peft.LoHaConfig(r=4, **where),
    peft.LoKrConfig(r=4, **where),
    peft.OFTConfig(r=4, oft_block_size=0, **where),
    peft.VeraConfig(r=4, **where),
    peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=16),
    peft.LNTuningConfig(task_type="CAUSAL_LM", target_modules=["input_layernorm"]),
):
    model = peft.get_peft_model(base(), config)
    print(sum(p.numel() for p in model.parameters() if p.requires_grad))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(3):
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        again = peft.PeftModel.from_pretrained(base(), folder).eval()
        print(model(input_ids=ids, labels=ids).loss.item(), again(input_ids=ids, labels=ids).loss.item())
        if hasattr(model, "merge_and_unload") and not config.is_prompt_learning:
            merged = model.merge_and_unload()
            print(merged(input_ids=ids, labels=ids).loss.item())
""",
    "sentence_transformers": """
import warnings; warnings.simplefilter("ignore")
import tempfile, torch, transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from sentence_transformers import SentenceTransformer, losses, util
from sentence_transformers import models as parts
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.manual_seed(0)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a cat dog sat ran on the mat road fast slow bird flew over house".split()]
with tempfile.TemporaryDirectory() as folder:
    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]")
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    bert.save_pretrained(folder + "/bert"), fast.save_pretrained(folder + "/bert")
    word = parts.Transformer(folder + "/bert")
    model = SentenceTransformer(modules=[word, parts.Pooling(32, "mean"), parts.Dense(32, 16), parts.Normalize()], device="cpu")
    lines = ["a cat sat on the mat", "the dog ran fast", "a bird flew over the house", "the cat ran on the road"]
    pairs = [(lines[0], lines[3], 1.0), (lines[1], lines[2], 0.0), (lines[1], lines[3], 0.7), (lines[0], lines[2], 0.2)]
    def batch():
        features = [model.tokenize([p[i] for p in pairs]) for i in (0, 1)]
        return features, torch.tensor([p[2] for p in pairs])
    for make in (losses.CosineSimilarityLoss, losses.MultipleNegativesRankingLoss, losses.CoSENTLoss, losses.ContrastiveLoss,
            lambda m: losses.MatryoshkaLoss(m, losses.MultipleNegativesRankingLoss(m), [16, 8])):
        loss_of = make(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(2):
            features, marks = batch()
            loss = loss_of(features, marks.round() if make is losses.ContrastiveLoss else marks)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item())
    found = model.encode(lines, convert_to_tensor=True, show_progress_bar=False)
    print(found.sum().item(), *util.cos_sim(found, found)[0].tolist(),
        *[h["score"] for h in util.semantic_search(found[:1], found, top_k=2)[0]])
    print(model.encode(lines, precision="int8", show_progress_bar=False).shape[0], model.similarity(found, found).sum().item())
    model.save(folder + "/model")
    print(SentenceTransformer(folder + "/model", device="cpu").encode(lines, show_progress_bar=False).sum())
""",
    "x_transformers": """
import warnings; warnings.simplefilter("ignore")
import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper, XTransformer
torch.manual_seed(0)
ids = torch.randint(0, 50, (2, 16))
for settings in (dict(), dict(rotary_pos_emb=True, use_rmsnorm=True), dict(alibi_pos_bias=True, ff_glu=True),
        dict(rel_pos_bias=True, attn_num_mem_kv=2),
        dict(attn_kv_heads=2, attn_qk_norm=True), dict(sandwich_norm=True), dict(ff_swish=True, macaron=True)):
    torch.manual_seed(0)
    net = TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4, **settings))
    model = AutoregressiveWrapper(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        loss = model(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    print(*model.generate(ids[:, :4], 5, temperature=0.0).flatten().tolist())
torch.manual_seed(0)
model = XTransformer(dim=32, enc_num_tokens=50, enc_depth=1, enc_heads=4, enc_max_seq_len=16, dec_num_tokens=50, dec_depth=1, dec_heads=4,
    dec_max_seq_len=16)
print(model(ids, ids, mask=torch.ones_like(ids).bool()).item())
model = ViTransformerWrapper(image_size=16, patch_size=4, num_classes=3, attn_layers=Encoder(dim=32, depth=1, heads=4))
print(model(torch.linspace(-1, 1, 768).reshape(1, 3, 16, 16)).sum().item())
""",
    "vit_pytorch": """
import warnings; warnings.simplefilter("ignore")
import torch
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.max_vit import MaxViT
from vit_pytorch.t2t import T2TViT
plain = dict(num_classes=3, dim=32, depth=2, heads=4, mlp_dim=48, image_size=16, patch_size=4)
images, marks = torch.linspace(-1, 1, 2 * 3 * 256).reshape(2, 3, 16, 16).double(), torch.tensor([0, 2])
for make in (lambda: ViT(**plain), lambda: SimpleViT(**plain), lambda: DeepViT(**plain), lambda: CaiT(**plain, cls_depth=1),
        lambda: CCT(img_size=16, embedding_dim=32, n_conv_layers=1, num_layers=2, num_heads=4, num_classes=3, stochastic_depth=0.0,
            dropout_rate=0.0, attention_dropout=0.0),
        lambda: MaxViT(num_classes=3, dim=16, depth=(1, 1), window_size=2, dim_head=8, dim_conv_stem=16),
        lambda: T2TViT(dim=32, image_size=16, depth=1, heads=2, mlp_dim=48, num_classes=3, t2t_layers=((3, 2), (3, 2)))):
    torch.manual_seed(0)
    net = make().double()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(net(images), marks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
""",
    "segmentation_models_pytorch": """
import warnings; warnings.simplefilter("ignore")
import torch, segmentation_models_pytorch as smp
x, marks = torch.linspace(-1, 1, 2 * 3 * 64 * 64).reshape(2, 3, 64, 64), (torch.arange(2 * 64 * 64) % 3).reshape(2, 64, 64)
for make in (smp.Unet, smp.FPN, smp.DeepLabV3Plus, smp.PSPNet, smp.Linknet):
    torch.manual_seed(0)
    net = make("resnet18", encoder_weights=None, classes=3).eval()
    loss = smp.losses.DiceLoss("multiclass")(net(x), marks) + smp.losses.FocalLoss("multiclass")(net(x), marks)
    loss.backward()
    print(loss.item(), net.encoder.conv1.weight.grad.norm().item())
table = smp.metrics.get_stats(net(x).argmax(1), marks, mode="multiclass", num_classes=3)
print(smp.metrics.iou_score(*table, reduction="micro").item(), smp.metrics.f1_score(*table, reduction="macro").item())
for loss in (smp.losses.JaccardLoss, smp.losses.TverskyLoss, smp.losses.LovaszLoss):
    print(loss("multiclass")(net(x), marks).item())
""",
    "open_clip": """
import warnings; warnings.simplefilter("ignore")
import torch
from open_clip import CLIP, ClipLoss, tokenize
from open_clip.model import CLIPTextCfg, CLIPVisionCfg
for settings in (dict(layers=2, width=32, head_width=16, patch_size=8, image_size=16), dict(layers=1, width=16, head_width=8,
    patch_size=4, image_size=16)):
    torch.manual_seed(0)
    model = CLIP(16, CLIPVisionCfg(**settings), CLIPTextCfg(context_length=16, vocab_size=49408, width=32, heads=2, layers=2))
    images = torch.randn(3, 3, settings["image_size"], settings["image_size"])
    words = tokenize(["a cat", "two dogs", "the sea"], context_length=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        found = model(images, words)
        loss = ClipLoss()(*found)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
print(*words[0, :5].tolist())
""",
    "lightly": """
import warnings; warnings.simplefilter("ignore")
import copy, torch
from lightly.loss import BarlowTwinsLoss, DCLLoss, DINOLoss, NegativeCosineSimilarity, NTXentLoss, SwaVLoss, VICRegLoss
from lightly.models.modules import BarlowTwinsProjectionHead, BYOLPredictionHead, BYOLProjectionHead, SimCLRProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
torch.manual_seed(0)
a, b = torch.randn(8, 16), torch.randn(8, 16)
for loss in (NTXentLoss(), NTXentLoss(memory_bank_size=(32, 4)), BarlowTwinsLoss(), VICRegLoss(), DCLLoss(), NegativeCosineSimilarity()):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), SimCLRProjectionHead(8, 8, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(2):
        found = loss(net(a), net(b))
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(found.item())
head = BYOLProjectionHead(16, 8, 4)
slow = copy.deepcopy(head)
deactivate_requires_grad(slow)
update_momentum(head, slow, m=0.9)
print(NegativeCosineSimilarity()(BYOLPredictionHead(4, 8, 4)(head(a)), slow(b)).item())
loss = DINOLoss(output_dim=4, warmup_teacher_temp_epochs=2)
print(loss([slow(a), slow(b)], [head(a), head(b)], epoch=0).item())
""",
}
