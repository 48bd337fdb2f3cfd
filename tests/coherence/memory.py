"""How many bytes the tensors of this process take."""

import gc

import torch


def tensor_bytes():
    """Of all tensors that are alive, those that share memory counted once. A recording holds nothing larger than its copies of tensors."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) is torch.Tensor and thing.layout == torch.strided:
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
