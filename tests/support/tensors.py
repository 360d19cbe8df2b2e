# SPDX-License-Identifier: MIT
# usage: tensors.py MODELS OUT
#
# Files of tensors, to make models for tests of. As a program it makes the pack of models OUT: that in MODELS, with half of the
# target's layers, which is quicker, and whose conditioned drafts still guess most of its tokens.
import json
import os
import pathlib
import struct
import sys


def read(folder):
    """A model's config, and its tensors as {name: (type, shape, bytes)}."""
    data = pathlib.Path(folder, "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, values = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    return json.loads(pathlib.Path(folder, "config.json").read_text()), {
        name: (t["dtype"], t["shape"], values[slice(*t["data_offsets"])]) for name, t in header.items()}


def write(folder, config, tensors):
    """Into a folder that is there."""
    header, end = {}, 0
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(part)]}
        end += len(part)
    text = json.dumps(header).encode()
    pathlib.Path(folder, "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(part for _, _, part in tensors.values()))
    pathlib.Path(folder, "config.json").write_text(json.dumps(config))


def halve(models, out, layers=8):
    models, out = pathlib.Path(models).resolve(), pathlib.Path(out)
    for model in models.iterdir():
        if model.name not in ("target", "glide"):
            os.symlink(model, out / model.name)
            continue
        (out / model.name).mkdir()
        for file in model.iterdir():
            if file.name not in ("config.json", "model.safetensors"):
                os.symlink(file, out / model.name / file.name)
        config, tensors = read(model)
        if model.name == "glide":
            config["target"]["num_hidden_layers"] = layers
        else:
            config["num_hidden_layers"] = layers
            tensors = {name: t for name, t in tensors.items() if not name.startswith("model.layers.") or int(name.split(".")[2]) < layers}
        write(out / model.name, config, tensors)


if __name__ == "__main__":
    halve(*sys.argv[1:])
