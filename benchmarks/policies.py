"""Robot policies at their published sizes, with random weights: workloads of gpu.py that need lerobot beside PyTorch.

Each entry of POLICIES makes a module whose forward takes and gives tensors alone, and its arguments.
"""
import torch
from torch import nn


class Policy(nn.Module):
    """A model, called as `call` says."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *args):
        return self.call(self.model, *args)


def interface(state, action, cameras):
    """What a policy sees and does, as lerobot's configurations say it: sizes of the state and the action, and of each camera's image."""
    from lerobot.configs.types import FeatureType, PolicyFeature

    seen = {"observation.state": PolicyFeature(FeatureType.STATE, (state,))}
    seen.update({f"observation.{name}": PolicyFeature(FeatureType.VISUAL, (3, *size)) for name, size in cameras.items()})
    return {"input_features": seen, "output_features": {"action": PolicyFeature(FeatureType.ACTION, (action,))}}


def act():
    """ACT: ResNet-18 over two cameras of 480 x 640, 100 actions of 14 joints."""
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    cameras = {"images.top": (480, 640), "images.wrist": (480, 640)}
    model = ACTPolicy(ACTConfig(**interface(14, 14, cameras), pretrained_backbone_weights=None, device="cpu")).eval().model
    call = lambda model, state, top, wrist: model({"observation.state": state, "observation.images": [top, wrist]})[0]
    return Policy(model, call), (torch.randn(1, 14), torch.rand(1, 3, 480, 640), torch.rand(1, 3, 480, 640))


def diffusion():
    """Diffusion Policy for Push-T: one step of its U-Net."""
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    config = DiffusionConfig(**interface(2, 2, {"image": (96, 96)}), pretrained_backbone_weights=None, crop_shape=(84, 84), device="cpu")
    model = DiffusionPolicy(config).eval().diffusion
    observed = {"observation.state": torch.randn(1, 2, 2), "observation.images": torch.randn(1, 2, 1, 3, 96, 96)}
    condition = model._prepare_global_conditioning(observed).detach()
    call = lambda unet, actions, step, condition: unet(actions, step, global_cond=condition)
    return Policy(model.unet, call), (torch.randn(1, 16, 2), torch.tensor([5]), condition)


def smolvla():
    """SmolVLA-450M: SmolVLM2-500M to its 16th layer, an action expert of 0.75 its width, two cameras of 512 x 512, a chunk of actions in 10 steps."""
    import transformers
    from lerobot.policies.smolvla import smolvlm_with_expert
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import VLAFlowMatching

    language = {"model_type": "llama", "vocab_size": 49280, "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32}
    language |= {"num_attention_heads": 15, "num_key_value_heads": 5, "head_dim": 64, "max_position_embeddings": 8192, "rope_theta": 100000}
    vision = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 512, "patch_size": 16}
    published = transformers.SmolVLMConfig(text_config=language, vision_config=vision, scale_factor=4, image_token_id=49190, pad_token_id=2)

    class Offline:
        """What the model asks a hub for: the configuration, and the numbers of two tokens."""

        fake_image_token_id, global_image_token_id = 49189, 49152

        def __init__(self):
            self.tokenizer = self

        @classmethod
        def from_pretrained(cls, *_, **__):
            return published if cls is OfflineConfig else cls()

    class OfflineConfig(Offline):
        pass

    smolvlm_with_expert.AutoConfig, smolvlm_with_expert.AutoProcessor = OfflineConfig, Offline
    cameras = {"images.top": (512, 512), "images.wrist": (512, 512)}
    model = VLAFlowMatching(SmolVLAConfig(**interface(6, 6, cameras), load_vlm_weights=False, device="cpu")).eval()

    def call(model, top, wrist, tokens, state, noise):
        there = torch.ones(1, dtype=torch.bool, device=tokens.device)
        return model.sample_actions([top, wrist], [there, there], tokens, torch.ones_like(tokens, dtype=torch.bool), state, noise=noise)

    image = lambda: torch.rand(1, 3, 512, 512) * 2 - 1
    return Policy(model, call), (image(), image(), torch.randint(0, 49000, (1, 48)), torch.randn(1, 32), torch.randn(1, 50, 32))


POLICIES = {"act_2cam_f32": act, "diffusion_unet_step_f32": diffusion, "smolvla_450m_f32": smolvla}
