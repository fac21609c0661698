"""A checkpoint of `lockstep train` in plain PyTorch, built of its own layers.

tiny_transformer.py CHECKPOINT < tokens.json

Reads [B, T] tokens and prints, as JSON, the [B, T, vocab_size] logits of the token behind each: under "as saved", and
of models that each differ in one thing from what the checkpoint is of.
"""
import json
import struct
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

# Our name of a layer in a block, and PyTorch's in nn.TransformerEncoderLayer.
BLOCK = {
    "attention_norm.": "norm1.",
    "attention_qkv.": "self_attn.in_proj_",  # rows: all heads' queries, then keys, then values
    "attention_out.": "self_attn.out_proj.",
    "mlp_norm.": "norm2.",
    "mlp_in.": "linear1.",
    "mlp_out.": "linear2.",
}


def read_safetensors(file):
    """Name -> tensor. The format: u64 length of a JSON header, the header, the tensors' bytes."""
    data = bytearray(file.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{file}: {name} is {entry['dtype']}"
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=8 + length + begin)
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def check_by_the_package(file, tensors):
    """What the safetensors package reads, where it is installed, must be the same."""
    try:
        from safetensors.torch import load_file
    except ImportError:
        return
    others = load_file(file)
    assert others.keys() == tensors.keys(), f"{file}: {sorted(others)} and {sorted(tensors)}"
    for name, tensor in tensors.items():
        assert torch.equal(others[name], tensor), f"{file}: {name} differs"


def read_weights(folder):
    """The weights of a checkpoint, from the files that its index names: each tensor is in the file it says."""
    places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    weights = {}
    for name in sorted(set(places.values())):
        tensors = read_safetensors(folder / name)
        check_by_the_package(folder / name, tensors)
        expected = {key for key, place in places.items() if place == name}
        assert tensors.keys() == expected, f"{name} has {sorted(tensors)}, the index says {sorted(expected)}"
        weights.update(tensors)
    return weights


def under(prefix, weights):
    """Takes the weights below `prefix` out, so that what is left at the end is what nobody asked for."""
    return {name[len(prefix) :]: weights.pop(name) for name in list(weights) if name.startswith(prefix)}


def heads_first(rows, heads):
    """As if the rows of q, k and v lay together by head."""
    return rows.reshape(heads, 3, -1, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)


def make_block(weights, config, eps, activation, qkv):
    block = nn.TransformerEncoderLayer(
        config["hidden_size"], config["num_attention_heads"], config["intermediate_size"], dropout=0,
        activation=activation, layer_norm_eps=eps, batch_first=True, norm_first=True)
    renamed = {}
    for name, tensor in weights.items():
        ours = next(part for part in BLOCK if name.startswith(part))
        renamed[BLOCK[ours] + name[len(ours) :]] = qkv(tensor) if ours == "attention_qkv." else tensor
    block.load_state_dict(renamed)  # strict: no name may be missing or left
    return block.eval()


def logits(tokens, weights, config, eps=None, activation=F.gelu, causal=True, qkv=lambda rows: rows,
           head=lambda token: token):
    weights = dict(weights)
    eps = config["layer_norm_eps"] if eps is None else eps
    token = weights.pop("embeddings.token.weight")
    length = tokens.shape[1]
    x = token[tokens] + weights.pop("embeddings.position.weight")[:length]
    later = torch.full((length, length), float("-inf")).triu(1) if causal else torch.zeros(length, length)
    for i in range(config["num_hidden_layers"]):
        x = make_block(under(f"block{i}.", weights), config, eps, activation, qkv)(x, later)
    x = F.layer_norm(x, x.shape[-1:], weights.pop("head.norm.weight"), weights.pop("head.norm.bias"), eps)
    assert not weights, f"weights that nobody asked for: {sorted(weights)}"
    return (x @ head(token).T).detach()


def main():
    folder = Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    weights = read_weights(folder)
    tokens = torch.tensor(json.load(sys.stdin))
    torch.manual_seed(0)
    changes = {
        "as saved": {},
        "without a causal mask": {"causal": False},
        "GELU by tanh": {"activation": lambda x: F.gelu(x, approximate="tanh")},
        "another eps": {"eps": config["layer_norm_eps"] / 10},
        "q, k and v by head": {"qkv": lambda rows: heads_first(rows, config["num_attention_heads"])},
        "a head of its own": {"head": lambda token: token + 0.02 * torch.randn_like(token)},
    }
    print(json.dumps({name: logits(tokens, weights, config, **change).tolist() for name, change in changes.items()}))


if __name__ == "__main__":
    main()
